"""How much the error of each head of each layer changed from base to head: layer × head, coloured by the ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gprojci_dashboards import heat, theme
from gprojci_dashboards.readable import literal, multiple, percent
from gprojci_dashboards.sketch import Sketch, heatmap

TITLE = "Change by layer and head"


@dataclass(frozen=True)
class DifferenceData:
    """base[layer][head] and head[layer][head] are errors as fractions; None where nothing was measured."""

    tensor: str
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    base: tuple[tuple[float | None, ...], ...]
    head: tuple[tuple[float | None, ...], ...]


def change(base: float | None, head: float | None) -> float | None:
    """Head over base; None where either is missing, infinite where only the head has NaN, Inf or an error."""
    if base is None or head is None:
        return None
    if not math.isfinite(head):
        return math.inf if math.isfinite(base) else 1.0
    if base <= 0 or not math.isfinite(base):
        return 1.0 if head == base else math.inf
    return head / base


def times(ratio: float) -> str:
    """A ratio in few digits: 1×, 0.96×, 230×."""
    if not math.isfinite(ratio):
        return "NaN/Inf"
    return multiple(ratio) if ratio >= 100 else f"{ratio:.3g}×"


def figure(data: DifferenceData) -> Sketch:
    """Blue became better, orange worse, each side scaled on its own; a cell says head over base."""
    ratios = [
        [change(base, head) for base, head in zip(*pair, strict=True)]
        for pair in zip(data.base, data.head, strict=True)
    ]
    scale = heat.around(1.0, (ratio for row in ratios for ratio in row))
    reach = [times(10**-scale.below), "1×", times(10**scale.above)]
    colours = scale.colours()
    colours["colorbar"]["ticktext"] = reach
    texts = [["" if ratio is None else times(ratio) for ratio in row] for row in ratios]
    said = [
        [
            "" if base is None or head is None else f"{percent(base)} → {percent(head)}"
            for base, head in zip(*pair, strict=True)
        ]
        for pair in zip(data.base, data.head, strict=True)
    ]
    chart = Sketch(
        heatmap(
            z=[[scale.place(ratio) for ratio in row] for row in ratios],
            x=[literal(name) for name in data.heads],
            y=[literal(name) for name in data.layers],
            **colours,
            text=texts,
            customdata=said,
            texttemplate="%{text}" if len(data.heads) <= 16 else None,
            textfont={"size": 11},
            xgap=2,
            ygap=2,
            hovertemplate=(
                f"<b>%{{y}} · %{{x}}</b><br>{literal(data.tensor)} error %{{customdata}}, %{{text}}<extra></extra>"
            ),
            hoverongaps=False,
        )
    )
    theme.styled(chart, height=max(220, 130 + 34 * len(data.layers)), legend=False)
    chart.update_layout(
        xaxis=theme.axis("", showgrid=False, showline=False, type="category"),
        yaxis=theme.axis(
            "", showgrid=False, showline=False, type="category", autorange="reversed", ticklabelstandoff=4
        ),
    )
    return chart
