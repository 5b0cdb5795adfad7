"""One metric over commits, a line per backend, with the gate's limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from gprojci_dashboards import theme
from gprojci_dashboards.readable import SHA_DIGITS, literal, memory, multiple, percent
from gprojci_dashboards.sketch import Sketch, numbers, scatter

TITLE = "History"
_CROSS = "x"


@dataclass(frozen=True)
class Commit:
    """One place on the horizontal axis; `position` counts commits from the oldest shown."""

    position: int
    sha: str
    message: str
    author: str
    when: str


class Value(NamedTuple):
    """One measured value of a series; low and high span its interval or the spread of re-runs."""

    position: int
    value: float
    low: float | None = None
    high: float | None = None
    verdict: str = ""
    url: str = ""


@dataclass(frozen=True)
class Line:
    """One backend's values, oldest first."""

    backend: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Change:
    """A change of level of a backend, from the commit at `position` on; `change` is new over old level, minus one."""

    backend: str
    position: int
    change: float


@dataclass(frozen=True)
class HistoryData:
    """unit: "fraction" (an error, shown as percent on a log axis), "ratio" (to `against`), "seconds" or "bytes"."""

    metric: str
    unit: str
    commits: tuple[Commit, ...]
    lines: tuple[Line, ...]
    limit: float | None = None
    against: str = ""
    changes: tuple[Change, ...] = ()
    resampled: bool = False
    """Whether a part of it, looked at alone, would have values that are not here."""


@lru_cache(maxsize=8192)
def shown(value: float, unit: str) -> str:
    """`value` as text with its unit; remembered, as each stands in the picture and in its table."""
    if unit == "fraction":
        return percent(value)
    if unit == "ratio":
        return multiple(value)
    if unit == "bytes":
        return memory(value)
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def figure(data: HistoryData) -> Sketch:
    """The metric over the commits in order; failing values carry a cross."""
    chart = Sketch()
    commits = {commit.position: commit for commit in data.commits}
    against = literal(f" {data.against}") if data.unit == "ratio" and data.against else ""
    names = [line.backend for line in data.lines]
    looks = theme.distinct_looks(sorted(names, key=lambda name: name not in theme.KNOWN))
    for line in data.lines:
        (colour, symbol), dash = looks[line.backend], theme.look(line.backend)[2]
        values = [value for value in line.values if value.position in commits]
        if data.unit == "fraction":
            values = [value for value in values if value.value > 0]
        spread = any(value.low is not None and value.high is not None for value in values)
        fails = any(value.verdict == "fail" for value in values)
        chart.add_trace(
            scatter(
                x=[value.position for value in values],
                y=numbers(value.value for value in values),
                mode="lines+markers",
                line={"color": colour, "width": 2, "dash": dash},
                marker={
                    "opacity": 1,
                    "symbol": [_CROSS if value.verdict == "fail" else symbol for value in values] if fails else symbol,
                    "size": [14 if value.verdict == "fail" else 8 for value in values] if fails else 8,
                    "color": [theme.LIMIT.light if value.verdict == "fail" else colour for value in values]
                    if fails
                    else colour,
                },
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": numbers(max(0.0, (value.high or value.value) - value.value) for value in values),
                    "arrayminus": numbers(max(0.0, value.value - (value.low or value.value)) for value in values),
                    "color": colour,
                    "thickness": 1,
                    "width": 2,
                }
                if spread
                else None,
                name=literal(line.backend),
                zorder=2 if fails else 1,
                customdata=[value.url for value in values],
                text=[_reading(value, data.unit, against) for value in values],
                hovertemplate=f"<b>{literal(line.backend)}</b> %{{text}}<br>%{{hovertext}}<extra></extra>",
            )
        )
    _mark_changes(chart, data, commits)
    y_axis = theme.axis(data.metric)
    everything = [value.value for line in data.lines for value in line.values]
    if data.limit is not None:
        everything.append(data.limit)
        chart.add_hline(y=data.limit, line={"color": theme.LIMIT.light, "width": 1.5, "dash": "dash"})
        chart.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=_position(data.limit, data.unit),
            yanchor="bottom",
            text=f"gate: {shown(data.limit, data.unit)}",
            showarrow=False,
            font={"size": 11, "color": theme.LIMIT.light},
        )
    if data.unit == "fraction":
        ticks, labels = theme.log_ticks(everything)
        y_axis |= {"type": "log", "tickvals": ticks, "ticktext": labels, "range": theme.log_range(everything, pad=0.1)}
    elif data.unit == "ratio":
        y_axis |= {"ticksuffix": "×"}
    elif data.unit == "bytes":
        ticks = _binary_ticks(max(everything, default=0.0))
        labels = ["0", *(shown(tick, data.unit) for tick in ticks[1:])]
        y_axis |= {"tickvals": ticks, "ticktext": labels, "range": [0, 1.1 * max(everything, default=1.0)]}
    else:
        y_axis |= {"ticksuffix": "s", "exponentformat": "SI", "rangemode": "tozero"}
    step = max(1, len(data.commits) // 12)
    ticked = data.commits[::-1][::step][::-1]
    narrow: dict[str, Any] = {"yaxis": {"title": {"text": ""}}, "legend": {"font": {"size": 11}}}
    narrow["height"] = 380 + theme.legend_pixels(names, width=theme.NARROW)
    theme.styled(chart, height=380 + theme.legend_pixels(names), narrow=narrow)
    chart.update_layout(
        meta={"places": [_place(commit) for commit in data.commits], "resampled": data.resampled},
        xaxis=theme.axis(
            "commit",
            tickvals=[commit.position for commit in ticked],
            ticktext=[commit.sha[:SHA_DIGITS] for commit in ticked],
            tickangle=-35,
            range=[min(commits, default=0) - 0.4, max(commits, default=0) + 0.4],
            showgrid=False,
        ),
        yaxis=y_axis,
    )
    return chart


def _binary_ticks(largest: float) -> list[float]:
    """Four to eight multiples of a power of two, up to the largest."""
    step = 2.0 ** math.floor(math.log2(max(largest, 4.0) / 4))
    return [step * count for count in range(int(largest // step) + 1)]


def _mark_changes(chart: Sketch, data: HistoryData, commits: dict[int, Commit]) -> None:
    """A triangle where a level changed, pointing the way it went; all are the better the lower they are."""
    if not data.changes:
        return
    values = {(line.backend, value.position): value.value for line in data.lines for value in line.values}
    there = [one for one in data.changes if values.get((one.backend, one.position), 0.0) > 0]
    for worse, name, tone in ((True, "worse from here on", theme.LIMIT), (False, "better from here on", theme.GOOD)):
        marked = [one for one in there if (one.change > 0) == worse and one.position in commits]
        if not marked:
            continue
        chart.add_trace(
            scatter(
                x=[one.position for one in marked],
                y=[values[one.backend, one.position] for one in marked],
                mode="markers+text",
                marker={"symbol": f"triangle-{'up' if worse else 'down'}", "size": 13, "color": tone.light},
                text=[changed(one.change) for one in marked],
                textposition="top center" if worse else "bottom center",
                textfont={"size": 11, "color": tone.light},
                name=name,
                zorder=3,
                cliponaxis=False,
                hovertext=[
                    f"<b>{literal(one.backend)}</b> {changed(one.change)} from "
                    f"{literal(commits[one.position].sha[:SHA_DIGITS])} on"
                    for one in marked
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )


def changed(change: float) -> str:
    """A change of level as text: `+3.1%`, `−4%`, `43×`."""
    if change >= 10:
        return f"{change + 1:.3g}×"
    return f"{'−' if change < 0 else '+'}{percent(abs(change))}"


def _position(value: float, unit: str) -> float:
    """Annotations on a log axis are placed by exponent."""
    return math.log10(value) if unit == "fraction" else value


def _place(commit: Commit) -> str:
    return (
        f"<b>{literal(commit.sha[:SHA_DIGITS])}</b> {literal(commit.message[:72])}<br>"
        f"{literal(commit.author)} · {literal(commit.when)}"
    )


def _reading(value: Value, unit: str, against: str) -> str:
    interval = ""
    if value.low is not None and value.high is not None:
        interval = f" ({shown(value.low, unit)} … {shown(value.high, unit)})"
    verdict = f", gate: {literal(value.verdict)}" if value.verdict else ""
    return f"{shown(value.value, unit)}{against}{interval}{verdict}"
