"""Achieved FLOP/s against arithmetic intensity, under the roof that the device reached in the same session.

The roofline model: Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gprojci_dashboards import theme
from gprojci_dashboards.readable import literal, pass_name
from gprojci_dashboards.sketch import Sketch, scatter

TITLE = "Roofline"
PASSES = {"forward": "", "backward": "-open", "forward_backward": "-open-dot"}
"""What is added to a backend's symbol for each pass."""


@dataclass(frozen=True)
class Point:
    """One pass of one backend: FLOPs over the bytes that must be moved, and 10¹² FLOPs per second."""

    backend: str
    label: str
    pass_: str
    intensity: float
    tflops: float
    seconds: float


@dataclass(frozen=True)
class RooflineData:
    """`matmul_tflops` (10¹² FLOPs per second) and `copy_gb_s` (10⁹ bytes per second) are the two parts of the roof."""

    matmul_tflops: float
    copy_gb_s: float
    points: tuple[Point, ...]


def roof(data: RooflineData, intensity: float) -> float:
    """Most 10¹² FLOPs per second at an intensity (FLOPs per byte)."""
    return min(data.matmul_tflops, data.copy_gb_s * intensity / 1e3)


def figure(data: RooflineData) -> Sketch:
    """The roof as a line, a mark per pass and backend; higher is faster, right of the ridge memory does not limit."""
    chart = Sketch()
    points = [point for point in data.points if point.intensity > 0 and point.tflops > 0]
    if data.matmul_tflops > 0 and data.copy_gb_s > 0:
        ridge = data.matmul_tflops * 1e3 / data.copy_gb_s
        left = min([ridge, *(point.intensity for point in points)]) / 4
        right = max([ridge, *(point.intensity for point in points)]) * 4
        chart.add_trace(
            scatter(
                x=[left, ridge, right],
                y=[roof(data, left), data.matmul_tflops, data.matmul_tflops],
                mode="lines",
                line={"color": theme.LIMIT.light, "width": 2},
                name="what the device reached",
                hovertemplate="%{y:.3~g} TFLOP/s at %{x:.3~g} FLOP a byte<extra>the roof</extra>",
            )
        )
    named = set()
    for point in points:
        colour, symbol, _ = theme.look(point.backend)
        name = f"{point.label}, {pass_name(point.pass_)}"
        chart.add_trace(
            scatter(
                x=[point.intensity],
                y=[point.tflops],
                mode="markers",
                marker={
                    "symbol": f"{symbol}{PASSES.get(point.pass_, '')}",
                    "size": 11,
                    "color": colour,
                    "line": {"width": 2, "color": colour},
                },
                name=literal(point.label),
                legendgroup=point.label,
                showlegend=point.label not in named,
                hovertemplate=(
                    f"<b>{literal(name)}</b><br>{point.tflops:.3g} TFLOP/s, "
                    f"{point.tflops / roof(data, point.intensity):.0%} of the roof at {point.intensity:.3g} FLOP a byte"
                    f"<br>{point.seconds * 1e3:.3g} ms<extra></extra>"
                ),
                cliponaxis=False,
            )
        )
        named.add(point.label)
    beside = theme.legend_pixels(named)
    narrow = {"height": 440 + beside, "xaxis": {"title": {"text": "FLOP per byte moved"}}}
    theme.styled(chart, height=380 + beside, narrow=narrow)
    heights = [*(point.tflops for point in points), data.matmul_tflops]
    low = min((value for value in heights if value > 0), default=1.0)
    chart.update_layout(
        xaxis=theme.axis(
            "arithmetic intensity, FLOP per byte that must be moved", type="log", dtick=1, tickformat=",~r"
        ),
        yaxis=theme.axis(
            "TFLOP/s",
            type="log",
            range=[math.log10(low) - 0.4, math.log10(max(heights) or 10.0) + 0.2],
            tickformat=",~r",
            nticks=7,
        ),
    )
    return chart
