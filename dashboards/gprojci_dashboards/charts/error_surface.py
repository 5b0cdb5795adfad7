"""The error surface: one heat map per backend, the keys' offset down, the spread of the logits across."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gprojci_dashboards import heat, theme
from gprojci_dashboards.readable import literal, percent
from gprojci_dashboards.sketch import Sketch, heatmap

TITLE = "Error over offset and spread of the logits"
DEFAULT_CENTRE = 0.01
ACROSS = 3
ROW_PIXELS = 24
HEAD_PIXELS = 72


@dataclass(frozen=True)
class Facet:
    """One backend; errors[offset][spread] are fractions, None where nothing was measured."""

    backend: str
    errors: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class SurfaceData:
    """The same offsets (norm of the keys' mean over their spread) and standard deviations of the logits for all.

    The colours turn at `centre` (a fraction; the gate's limit where there is one).
    """

    tensor: str
    offsets: tuple[float, ...]
    logit_stds: tuple[float, ...]
    facets: tuple[Facet, ...]
    centre: float | None = None


def figure(data: SurfaceData) -> Sketch:
    """Small multiples with one colour scale; each cell says its value."""
    scale = heat.around(
        data.centre or DEFAULT_CENTRE, (error for facet in data.facets for row in facet.errors for error in row)
    )
    columns = min(ACROSS, max(len(data.facets), 1))
    rows = max(-(-len(data.facets) // columns), 1)
    pitch = len(data.offsets) * ROW_PIXELS + HEAD_PIXELS
    share = 1 - HEAD_PIXELS / pitch
    chart = Sketch()
    stds, offsets = [f"{std:g}" for std in data.logit_stds], [f"{offset:g}" for offset in data.offsets]
    for place, facet in enumerate(data.facets):
        row, column = divmod(place, columns)
        suffix = "" if place == 0 else str(place + 1)
        left, top = (column + 0.06) / columns, 1 - row / rows
        chart.add_trace(
            heatmap(
                z=[[scale.place(error) for error in errors] for errors in facet.errors],
                x=stds,
                y=offsets,
                xaxis=f"x{suffix}",
                yaxis=f"y{suffix}",
                text=[["" if error is None else percent(error) for error in errors] for errors in facet.errors],
                texttemplate="%{text}",
                textfont={"size": 10},
                xgap=1,
                ygap=1,
                hoverongaps=False,
                hovertemplate=(
                    f"<b>{literal(facet.backend)}</b><br>offset %{{y}} × spread, logit std %{{x}}<br>"
                    f"{literal(data.tensor)} error %{{text}}<extra></extra>"
                ),
                showscale=place == 0,
                **scale.colours(),
            )
        )
        bare: dict[str, Any] = {"showgrid": False, "showline": False, "type": "category"}
        chart.update_layout(
            **{
                f"xaxis{suffix}": theme.axis(
                    "logit std", standoff=22, domain=[left, (column + 0.97) / columns], anchor=f"y{suffix}", **bare
                ),
                f"yaxis{suffix}": theme.axis(
                    "offset ÷ spread" if column == 0 else "",
                    domain=[max(0.0, top - share / rows), top],
                    anchor=f"x{suffix}",
                    **bare,
                ),
            }
        )
        chart.add_annotation(
            x=left,
            y=top,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            text=f"<b>{literal(facet.backend)}</b>",
            showarrow=False,
            font={"size": 12, "color": theme.INK.light},
        )
    theme.styled(chart, height=60 + rows * pitch, legend=False)
    if data.facets:
        # The colour bar stands above the names of the first row.
        chart.data[0]["colorbar"]["y"] = 1 + 24 / (rows * pitch)
    return chart
