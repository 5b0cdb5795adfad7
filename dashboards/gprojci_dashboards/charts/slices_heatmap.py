"""Errors of all slices as a heat map, layer × head or slice × backend, coloured around the gate's limit."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass

import plotly.graph_objects as go

from gprojci_dashboards import theme
from gprojci_dashboards.readable import percent

TITLE = "Error per slice"
DEFAULT_CENTRE = 0.01


@dataclass(frozen=True)
class HeatmapData:
    """errors[row][column] are fractions, None where nothing was measured.

    The colours turn at `centre` (a fraction; the gate's limit where there is one).
    """

    tensor: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    errors: tuple[tuple[float | None, ...], ...]
    centre: float | None = None
    row_title: str = "slice"
    column_title: str = "backend"


def figure(data: HeatmapData) -> go.Figure:
    """Blue is under the limit, orange beyond it; each cell says its value."""
    finite = [error for row in data.errors for error in row if error is not None and error > 0 and math.isfinite(error)]
    centre = data.centre or DEFAULT_CENTRE
    middle = math.log10(centre)
    # Each half is scaled on its own, so that a shade under the limit stays visible beside a thousandfold excess.
    below = max((math.log10(centre / error) for error in finite if error < centre), default=1.0)
    above = max((math.log10(error / centre) for error in finite if error > centre), default=1.0)
    below, above = max(below, 0.5), max(above, 1.0)

    def place(error: float | None) -> float | None:
        if error is None:
            return None
        if not math.isfinite(error):
            return 1.0
        if error <= 0:
            return -1.0
        away = math.log10(error) - middle
        return max(-1.0, min(1.0, away / (above if away > 0 else below)))

    texts = [["" if error is None else percent(error) for error in row] for row in data.errors]
    chart = go.Figure(
        go.Heatmap(
            z=[[place(error) for error in row] for row in data.errors],
            x=[html.escape(column) for column in data.columns],
            y=[html.escape(row) for row in data.rows],
            zmin=-1,
            zmax=1,
            colorscale=[[stop, tone.light] for stop, tone in theme.HEAT],
            text=texts,
            texttemplate="%{text}" if len(data.columns) * len(data.rows) <= 200 else None,
            textfont={"size": 11},
            xgap=2,
            ygap=2,
            hovertemplate=f"<b>%{{y}}</b> · %{{x}}<br>{html.escape(data.tensor)} error %{{text}}<extra></extra>",
            hoverongaps=False,
            colorbar={
                "tickvals": [-1, 0, 1],
                "ticktext": [
                    percent(centre * 10**-below),
                    percent(centre),
                    percent(centre * 10**above),
                ],
                "tickangle": 0,
                "thickness": 10,
                "outlinewidth": 0,
                "tickfont": {"size": 11, "color": theme.MUTED.light},
                "orientation": "h",
                "y": 1.02,
                "yanchor": "bottom",
                "x": 0,
                "xanchor": "left",
                "len": 0.55,
            },
        )
    )
    theme.styled(chart, height=max(240, 120 + 26 * len(data.rows)), legend=False)
    chart.update_layout(
        xaxis=theme.axis("", showgrid=False, showline=False, type="category", side="bottom"),
        yaxis=theme.axis(
            "", showgrid=False, showline=False, type="category", autorange="reversed", ticklabelstandoff=4
        ),
    )
    return chart
