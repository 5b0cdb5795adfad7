"""Times of single calls of attention, side by side: their share at or below each time."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from gprojci_dashboards import theme
from gprojci_dashboards.readable import literal
from gprojci_dashboards.sketch import Sketch, scatter

TITLE = "Times of single calls"


@dataclass(frozen=True)
class Calls:
    """Times of one side in seconds."""

    name: str
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class CallTimesData:
    """`what` says what was called."""

    what: str
    sides: tuple[Calls, ...]


_LOOKS = ((theme.SERIES[5], "dash"), (theme.SERIES[0], "solid"))


def figure(data: CallTimesData) -> Sketch:
    """Empirical distribution functions; the diamonds are the medians, further left is faster."""
    chart = Sketch()
    for (tone, dash), side in zip(_LOOKS, data.sides, strict=False):
        times = sorted(side.seconds)
        if not times:
            continue
        chart.add_trace(
            scatter(
                x=[time * 1e3 for time in times],
                y=[(place + 1) / len(times) for place in range(len(times))],
                mode="lines",
                line={"shape": "hv", "color": tone.light, "width": 2, "dash": dash},
                name=literal(side.name),
                hovertemplate=f"{literal(side.name)}<br>%{{y:.0%}} of calls within %{{x:.4~g}} ms<extra></extra>",
            )
        )
        chart.add_trace(
            scatter(
                x=[median(times) * 1e3],
                y=[0.5],
                mode="markers",
                marker={"symbol": "diamond", "size": 10, "color": tone.light},
                showlegend=False,
                hovertemplate=(
                    f"<b>{literal(side.name)}</b><br>median of {len(times)} calls %{{x:.4~g}} ms<extra></extra>"
                ),
            )
        )
    theme.styled(chart, height=300)
    chart.update_layout(
        xaxis=theme.axis(f"time of one {data.what} call, ms", tickformat="~g"),
        yaxis=theme.axis("share of calls", tickformat=".0%", range=[0, 1.03]),
    )
    return chart
