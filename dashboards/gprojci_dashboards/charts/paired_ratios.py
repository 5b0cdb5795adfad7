"""The paired timing ratios behind each speed verdict: every pair, the median, its interval and the margin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gprojci_dashboards import theme
from gprojci_dashboards.readable import literal
from gprojci_dashboards.sketch import Sketch, Trace, scatter

TITLE = "Paired timing ratios"
LOGARITHMIC_FROM = 5.0
"""Largest over smallest ratio shown from which the axis is logarithmic."""
SPACED = 24
"""Most rows that stand further apart than they must."""
BETWEEN = 60
"""Pixels between two planes, for the numbers of the upper one."""


@dataclass(frozen=True)
class Comparison:
    """One backend timed against another in interleaved pairs; ratios are time over time (1.0 = equal)."""

    label: str
    ratios: tuple[float, ...]
    ratio: float
    low: float
    high: float
    control: bool = False  # the A/A control: the same code on both sides
    void_pairs: int = 0  # thrown away because the device was slowed down while they were measured
    processes: int = 1  # of each side, that the pairs were spread over
    itself: bool = False  # another revision of the same backend on the other side


@dataclass(frozen=True)
class PairedRatiosData:
    """`margin` is the allowed increase over the backend itself as a fraction (0.1 = 10% slower), or None where speed is
    not gated."""

    comparisons: tuple[Comparison, ...]
    margin: float | None = None


def figure(data: PairedRatiosData) -> Sketch:
    """One row per comparison; the bar is the interval of the median.

    What is compared with itself (another revision, the A/A control) has a plane and an axis of its own above the
    others: a hundredth matters there, and peers may be many times as fast.
    """
    chart = Sketch()
    planes = [
        plane
        for plane in (
            _Plane(tuple(one for one in data.comparisons if one.itself or one.control), data.margin),
            _Plane(tuple(one for one in data.comparisons if not (one.itself or one.control)), None),
        )
        if plane.rows
    ] or [_Plane((), None)]
    rows = len(data.comparisons)
    height = max(200, 46 + (54 if rows <= SPACED else 34) * (len(planes) + rows))
    gap = BETWEEN / height
    theme.styled(chart, height=height, legend=False)
    chart.update_layout(margin={"l": 8, "r": 12, "t": 28, "b": 8})
    top = 1.0
    for index, plane in enumerate(planes):
        last = index == len(planes) - 1
        bottom = 0.0 if last else top - len(plane.rows) / rows * (1 - gap)
        _draw(chart, plane, "" if index == 0 else "2", (bottom, top), last=last)
        top = bottom - gap
    return chart


@dataclass(frozen=True)
class _Plane:
    """Comparisons that share an axis."""

    rows: tuple[Comparison, ...]
    margin: float | None


def _draw(chart: Sketch, plane: _Plane, suffix: str, domain: tuple[float, float], *, last: bool) -> None:
    """Draws a plane between two heights (0 is the bottom of the figure, 1 its top)."""
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    refs = {"xref": f"x{suffix} domain", "yref": f"y{suffix}"}
    for row, comparison in enumerate(plane.rows):
        tone = theme.SERIES[5] if comparison.control else theme.SERIES[0]
        chart.add_annotation(
            x=0,
            xanchor="left",
            y=row - 0.36,
            yanchor="middle",
            text=literal(comparison.label),
            showarrow=False,
            font={"size": 12, "color": theme.INK.light},
            **refs,
        )
        chart.add_trace(
            scatter(
                x=list(comparison.ratios),
                y=[row + _jitter(index) for index in range(len(comparison.ratios))],
                mode="markers",
                marker={"size": 5, "color": tone.light, "opacity": 0.35},
                hovertemplate=f"{literal(comparison.label)}<br>one pair: %{{x:.3f}}×<extra></extra>",
                showlegend=False,
                **axes,
            )
        )
        chart.add_trace(_interval(comparison, row, tone, axes))
    ends = {"yref": f"y{suffix} domain", "y0": 0, "y1": 1, "xref": f"x{suffix}"}
    chart.add_line(x0=1.0, x1=1.0, line={"color": theme.AXIS.light, "width": 1.5}, **ends)
    low, high = _window(plane)
    if plane.margin is not None:
        limit = 1.0 + plane.margin
        dashed = {"color": theme.LIMIT.light, "width": 1.5, "dash": "dash"}
        chart.add_line(x0=limit, x1=limit, line=dashed, **ends)
        chart.add_annotation(
            x=limit,
            xref=f"x{suffix}",
            y=1,
            yref=f"y{suffix} domain",
            yanchor="bottom",
            xanchor="right" if limit - low > 0.75 * (high - low) else "center",
            text=f"margin +{plane.margin:.0%}",
            showarrow=False,
            font={"size": 11, "color": theme.LIMIT.light},
        )
    beyond = sum(not low <= ratio <= high for comparison in plane.rows for ratio in comparison.ratios)
    if beyond:
        chart.add_annotation(
            x=1,
            xref=f"x{suffix} domain",
            xanchor="right",
            y=0,
            yref=f"y{suffix} domain",
            yanchor="bottom",
            text=f"{beyond} of the pairs beyond; a double click shows all",
            showarrow=False,
            font={"size": 11, "color": theme.MUTED.light},
        )
    title = "time ratio of one pair (left is faster)" if last else ""
    chart.update_layout(
        **{
            f"xaxis{suffix}": theme.axis(title, anchor=f"y{suffix}", **_extent(low, high)),
            f"yaxis{suffix}": theme.axis(
                "",
                anchor=f"x{suffix}",
                domain=list(domain),
                showticklabels=False,
                range=[len(plane.rows) - 0.45, -0.6],
                showgrid=False,
                showline=False,
            ),
        }
    )


def _interval(comparison: Comparison, row: int, tone: theme.Tone, axes: dict[str, str]) -> Trace:
    return scatter(
        x=[comparison.ratio],
        y=[row],
        mode="markers",
        marker={
            "symbol": "line-ns-open" if comparison.control else "diamond",
            "size": 12,
            "color": tone.light,
            "line": {"width": 2, "color": tone.light},
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, comparison.high - comparison.ratio)],
            "arrayminus": [max(0.0, comparison.ratio - comparison.low)],
            "color": tone.light,
            "thickness": 3,
            "width": 7,
        },
        hovertemplate=(
            f"<b>{literal(comparison.label)}</b><br>median {comparison.ratio:.3f}× "
            f"({comparison.low:.3f} … {comparison.high:.3f}), {len(comparison.ratios)} pairs"
            f"{f' over {comparison.processes} processes' if comparison.processes > 1 else ''}"
            f"{f', {comparison.void_pairs} void' if comparison.void_pairs else ''}<extra></extra>"
        ),
        showlegend=False,
        **axes,
    )


def _window(plane: _Plane) -> tuple[float, float]:
    """What is shown at first: every interval, the margin, and the inner nine tenths of the pairs of each comparison."""
    ends = [1.0, 1.0 + (plane.margin or 0.0)]
    for comparison in plane.rows:
        pairs = sorted(comparison.ratios)
        cut = len(pairs) // 20
        ends += [comparison.low, comparison.high, *pairs[cut : len(pairs) - cut]]
    if max(ends) / min(ends) > LOGARITHMIC_FROM:
        return min(ends) / 1.15, max(ends) * 1.15
    padding = 0.05 * (max(ends) - min(ends)) or 0.05
    return min(ends) - padding, max(ends) + padding


def _extent(low: float, high: float) -> dict[str, Any]:
    """Type and range of the axis: logarithmic where one backend takes many times as long as another."""
    if low > 0 and high / low > LOGARITHMIC_FROM:
        return {"type": "log", "range": [math.log10(low), math.log10(high)], **theme.ratio_ticks()}
    return {"range": [low, high], "ticksuffix": "×"}


def _jitter(index: int) -> float:
    """A fixed offset within ±0.15 that looks scattered (golden-ratio sequence), so that a figure is reproducible."""
    return ((index * 0.618033988749895) % 1.0 - 0.5) * 0.3
