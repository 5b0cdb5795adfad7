"""The roofline of a report's page: how near each pass comes to what the device reached in the same session."""

from __future__ import annotations

import re

from gprojci_dashboards.charts.roofline import Point, RooflineData, roof
from gprojci_dashboards.readable import pass_name
from gprojci_service.pages import drawings
from gprojci_service.pages.formatting import flops, share
from gprojci_service.pages.report_choices import Shown
from gprojci_service.pages.report_parts import label
from gprojci_service.pages.schemas import Section
from gprojci_suite.contract.report import Layer, Report

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)x(\d+)")
_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


def section(report: Report, choice: Shown) -> Section | None:
    """The timed case's passes under the roof; None where FLOP/s or the device's own were not measured."""
    timed = report.throughput
    if timed is None or timed.ceilings is None:
        return None
    case = choice.timed_case
    rated = intensities(report, case)
    measured = [item for item in timed.measurements if item.case == case and item.tflops is not None]
    # Of one session the base is drawn where there is no head: both would lie on each other.
    heads = {item.backend for item in measured if item.revision == "head"}
    points = tuple(
        Point(
            item.backend,
            label(item.backend, item.revision),
            item.pass_,
            rated[item.pass_],
            item.tflops,
            item.median_seconds,
        )
        for item in measured
        if item.tflops is not None and item.pass_ in rated and not (item.revision == "base" and item.backend in heads)
    )
    if not points:
        return None
    data = RooflineData(timed.ceilings.matmul_tflops, timed.ceilings.copy_gb_s, points)
    best = max(points, key=lambda point: point.tflops / roof(data, point.intensity))
    caption = (
        f"Achieved TFLOP/s of each pass of {case} over its FLOPs per byte that must be moved at least: every tensor "
        "read or written once. Filled forward, hollow backward, dotted both. The roof is a matrix product and a copy "
        "in the same session."
    )
    words = f"nearest to the roof: {best.label}, {pass_name(best.pass_)}"
    return Section(
        "roofline",
        "Roofline",
        f"{words}, {share(best.tflops / roof(data, best.intensity))} of {flops(roof(data, best.intensity))}",
        (),
        drawings.roofline(data, caption),
    )


def intensities(report: Report, case: str) -> dict[str, float]:
    """FLOPs of a case by pass, over the bytes that must be moved at least; empty where its shape is not known.

    FLOPs as the contract rates them: forward 4·B·H·Sq·Sk·D, half of it causal, backward 2.5 times that. Bytes: forward
    reads q, k, v and writes o; backward reads q, k, v, o, do and writes dq, dk, dv; each once, and the log-sum-exp in
    float32 by both.
    """
    what, mask, kind = (["", "", *case.rsplit(".", 2)])[-3:]
    shape, size = _SHAPE.fullmatch(what), _ELEMENT_BYTES.get(kind)
    layer = next((entry.layers[0] for entry in report.inputs if entry.input == what and entry.layers), None)
    if shape:
        batch, heads, length, head_dim = map(int, shape.groups())
        layer = Layer(what, batch, heads, heads, length, length, head_dim)
    if layer is None or size is None:
        return {}
    queries = layer.batch * layer.heads * layer.seq_q
    flops = 4.0 * queries * layer.seq_k * layer.head_dim * (0.5 if mask == "causal" else 1.0)
    tensors = size * (queries + layer.batch * layer.kv_heads * layer.seq_k) * layer.head_dim
    forward, backward = 2 * tensors + 4 * queries, 4 * tensors + 4 * queries
    return {
        "forward": flops / forward,
        "backward": 2.5 * flops / backward,
        "forward_backward": 3.5 * flops / (forward + backward),
    }
