"""A search for the first bad commit: what each measurement said, and the commits that remain."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gprojci_dashboards import theme
from gprojci_dashboards.readable import SHA_DIGITS, literal
from gprojci_dashboards.sketch import Sketch, scatter

TITLE = "What was measured"
NAMED_AT_MOST = 24
"""Measurements that carry their number; more of them would lie on each other."""
_LOOKS = {
    "good": ("good", theme.GOOD, "circle"),
    "bad": ("bad", theme.LIMIT, "x"),
    "unsure": ("cannot tell", theme.MUTED, "diamond-open"),
    "skipped": ("skipped", theme.MUTED, "square-open"),
}


@dataclass(frozen=True)
class Measured:
    """One measurement of the commit `position` places after the good one, the `order`th of the search.

    Ratios are the metric over the good commit's; None where it is not finite or was not measured.
    """

    position: int
    sha: str
    word: str  # good | bad | unsure | skipped
    order: int
    ratio: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    url: str = ""


@dataclass(frozen=True)
class BisectionData:
    """`good` and `bad` are the last position known to be good and the first one after it known to be bad, of `commits`.

    `threshold` is the ratio from which on a commit is bad, None until it is known.
    """

    metric: str
    commits: int
    measured: tuple[Measured, ...]
    good: int = 0
    bad: int = 0
    threshold: float | None = None


def figure(data: BisectionData) -> Sketch:
    """The ratio to the good commit (log) over the commits along first parents; the band holds what remains."""
    chart = Sketch()
    finite = [entry.ratio for entry in data.measured if entry.ratio is not None and entry.ratio > 0]
    ends = [end for entry in data.measured for end in (entry.low, entry.high) if end is not None and end > 0]
    reach = [1.0, *finite, *ends, *([data.threshold] if data.threshold else [])]
    air = max(1.1, (max(reach) / min(reach)) ** 0.1)
    low, high = min(reach) / air, max(reach) * air
    # What was not measured stands at the bottom, clear of the axis and its numbers.
    floor = low / air**1.5 if any(_place(entry, low, high) == low for entry in data.measured) else low
    if data.bad > data.good:
        chart.add_vrect(x0=data.good + 0.5, x1=data.bad + 0.5, fillcolor=theme.LIMIT_FILL.light)
    if data.commits:
        chart.add_trace(
            scatter(
                x=[0],
                y=[1.0],
                mode="markers",
                marker={"symbol": "circle-open", "size": 11, "color": theme.GOOD.light, "line": {"width": 2}},
                name="the good commit",
                hovertemplate="<b>the good commit</b>: all others are measured against it<extra></extra>",
            )
        )
    for word, (name, tone, symbol) in _LOOKS.items():
        entries = [entry for entry in data.measured if entry.word == word]
        if not entries:
            continue
        places = [_place(entry, low, high) for entry in entries]
        chart.add_trace(
            scatter(
                x=[entry.position for entry in entries],
                y=places,
                mode="markers+text" if len(data.measured) <= NAMED_AT_MOST else "markers",
                text=[str(entry.order) for entry in entries],
                textposition="top center",
                textfont={"size": 11, "color": theme.MUTED.light},
                marker={"symbol": symbol, "size": 11, "color": tone.light, "line": {"width": 2, "color": tone.light}},
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [max(0.0, (entry.high or y) - y) for entry, y in zip(entries, places, strict=True)],
                    "arrayminus": [max(0.0, y - (entry.low or y)) for entry, y in zip(entries, places, strict=True)],
                    "color": tone.light,
                    "thickness": 1.25,
                    "width": 4,
                },
                name=name,
                customdata=[entry.url for entry in entries],
                hovertext=[_said(entry, name) for entry in entries],
                hovertemplate="%{hovertext}<extra></extra>",
                cliponaxis=False,
            )
        )
    if data.threshold:
        chart.add_hline(y=data.threshold, line={"color": theme.LIMIT.light, "width": 1.5, "dash": "dash"})
        chart.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=math.log10(data.threshold),
            yanchor="bottom",
            text=f"bad from {data.threshold:.3g}× on",
            showarrow=False,
            font={"size": 11, "color": theme.LIMIT.light},
        )
    narrow = {
        "xaxis": {"title": {"text": "commits after the good one"}},
        "yaxis": {"title": {"text": "÷ the good commit's"}},
    }
    theme.styled(chart, height=360, narrow=narrow)
    wide = high / low > 5
    chart.update_layout(
        xaxis=theme.axis(
            "commits after the good one, along first parents",
            range=[-0.5 - 0.02 * data.commits, max(data.commits - 0.5, 1) + 0.02 * data.commits],
            tickformat="d",
            showgrid=False,
        ),
        yaxis=theme.axis(
            f"{data.metric} ÷ the good commit's",
            type="log",
            range=[math.log10(floor), math.log10(high)],
            **(theme.ratio_ticks(low) if wide else {"ticksuffix": "×", "tickformat": ".3~g", "nticks": 6}),
        ),
    )
    return chart


def _place(entry: Measured, low: float, high: float) -> float:
    """Where a mark stands: what is not finite at the top, what was not measured at the bottom."""
    if entry.ratio is not None and entry.ratio > 0:
        return entry.ratio
    return high if entry.word == "bad" else low


def _said(entry: Measured, name: str) -> str:
    interval = "" if entry.low is None or entry.high is None else f" ({entry.low:.3g} … {entry.high:.3g})"
    reading = "" if entry.ratio is None else f"<br>{entry.ratio:.3g}× the good commit's{interval}"
    note = f"<br>{literal(entry.note)}" if entry.note else ""
    return f"<b>{literal(entry.sha[:SHA_DIGITS])}</b> {name}, measurement {entry.order}{reading}{note}"
