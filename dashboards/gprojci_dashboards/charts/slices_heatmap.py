"""Errors of all slices as a heat map, layer × head or slice × backend, coloured around the gate's limit."""

from __future__ import annotations

from dataclasses import dataclass

from gprojci_dashboards import heat, theme
from gprojci_dashboards.readable import literal, percent
from gprojci_dashboards.sketch import Sketch, heatmap

TITLE = "Error per slice"
DEFAULT_CENTRE = 0.01
UPRIGHT_FROM, UPRIGHT = 20, 220
"""Columns from which their names stand upright, and the most pixels that these then take."""


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


def figure(data: HeatmapData) -> Sketch:
    """Blue is under the limit, orange beyond it; each cell says its value."""
    scale = heat.around(data.centre or DEFAULT_CENTRE, (error for row in data.errors for error in row))
    texts = [["" if error is None else percent(error) for error in row] for row in data.errors]
    chart = Sketch(
        heatmap(
            z=[[scale.place(error) for error in row] for row in data.errors],
            x=[literal(column) for column in data.columns],
            y=[literal(row) for row in data.rows],
            **scale.colours(),
            text=texts,
            texttemplate="%{text}" if len(data.columns) * len(data.rows) <= 200 else None,
            textfont={"size": 11},
            xgap=2,
            ygap=2,
            hovertemplate=f"<b>%{{y}}</b> · %{{x}}<br>{literal(data.tensor)} error %{{text}}<extra></extra>",
            hoverongaps=False,
        )
    )
    # Many names stand upright under the columns.
    below = min(7 * max(map(len, data.columns)), UPRIGHT) if len(data.columns) > UPRIGHT_FROM else 0
    theme.styled(chart, height=max(240, 120 + 26 * len(data.rows) + below), legend=False)
    chart.update_layout(
        xaxis=theme.axis("", showgrid=False, showline=False, type="category", side="bottom"),
        yaxis=theme.axis(
            "", showgrid=False, showline=False, type="category", autorange="reversed", ticklabelstandoff=4
        ),
    )
    return chart
