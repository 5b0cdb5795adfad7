"""How the errors of all slices are distributed: an empirical cumulative distribution for each side."""

from __future__ import annotations

from dataclasses import dataclass

from gprojci_dashboards import theme
from gprojci_dashboards.readable import literal, percent
from gprojci_dashboards.sketch import Sketch, scatter

TITLE = "Error distribution over slices"


@dataclass(frozen=True)
class Side:
    """The relative errors (fractions) of one side's slices, with the slices' names in the same order."""

    name: str
    errors: tuple[float, ...]
    slices: tuple[str, ...]


@dataclass(frozen=True)
class DistributionData:
    """Usually two sides, base first; `ceiling` is the gate's limit as a fraction."""

    tensor: str
    sides: tuple[Side, ...]
    ceiling: float | None = None


def figure(data: DistributionData) -> Sketch:
    """Share of slices with an error of at most x; a curve further left is better."""
    chart = Sketch()
    everything: list[float] = []
    for index, side in enumerate(data.sides):
        pairs = sorted((error, name) for error, name in zip(side.errors, side.slices, strict=True) if error > 0)
        everything += [error for error, _ in pairs]
        tone = theme.SERIES[0] if index == len(data.sides) - 1 else theme.SERIES[5]
        chart.add_trace(
            scatter(
                x=[error for error, _ in pairs],
                y=[(rank + 1) / len(pairs) for rank in range(len(pairs))],
                mode="lines+markers",
                line={
                    "color": tone.light,
                    "width": 2,
                    "shape": "hv",
                    "dash": theme.DASHES[(len(data.sides) - 1) - index],
                },
                marker={"size": 6, "symbol": theme.SYMBOLS[index], "color": tone.light},
                name=side.name,
                text=[f"{literal(name)}: {percent(error)}" for error, name in pairs],
                hovertemplate=f"<b>{literal(side.name)}</b><br>%{{text}}<br>%{{y:.0%}} of slices are at most this"
                "<extra></extra>",
            )
        )
    if data.ceiling is not None:
        everything.append(data.ceiling)
        chart.add_vline(x=data.ceiling, line={"color": theme.LIMIT.light, "width": 1.5, "dash": "dash"})
    ticks, labels = theme.log_ticks(everything)
    theme.styled(chart, height=340)
    chart.update_layout(
        xaxis=theme.axis(
            f"{data.tensor} error of a slice",
            type="log",
            tickvals=ticks,
            ticktext=labels,
            range=theme.log_range(everything),
        ),
        yaxis=theme.axis("share of slices", tickformat=".0%", range=[0, 1.04]),
    )
    return chart
