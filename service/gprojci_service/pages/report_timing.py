"""The timed parts of a report's page: accuracy against speed, passes of attention, training steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gprojci_dashboards.charts.pareto import Mark, ParetoData, Step
from gprojci_dashboards.readable import pass_name
from gprojci_service.pages import drawings, findings, report_kernels
from gprojci_service.pages.formatting import (
    DASH,
    clean,
    first_line,
    flops,
    fraction,
    memory,
    number,
    seconds,
    share,
    signed_percent,
    tensor,
)
from gprojci_service.pages.report_choices import TENSORS, Shown
from gprojci_service.pages.report_parts import label
from gprojci_service.pages.schemas import Cell, Choice, Section
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.timing import Comparison, Measurement
from gprojci_suite.contract.vocabulary import PASSES


def anchor_of(report: Report) -> str | None:
    """The backend that timings are divided by; None where nothing was timed against one."""
    return next((entry.backend for entry in report.backends if entry.role == "anchor"), None)


def pareto(report: Report, choice: Shown, policy: Mapping[str, Any] | None) -> Section | None:
    """Accuracy against speed of one session, where both were measured."""
    anchor = anchor_of(report)
    if report.accuracy is None or report.throughput is None or anchor is None:
        return None
    (shown, chosen), case = choice.marks, choice.mark_case
    compared = {
        (item.backend, item.revision): item
        for item in report.throughput.comparisons
        if (item.pass_, item.against_backend, item.control) == ("forward_backward", anchor, False) and item.case == case
    }
    lines = [line for line in report.accuracy.summary if (line.input, line.tensor) == (shown, chosen)]
    marks = []
    for line in lines:
        if line.revision == "base":
            continue
        role = next(
            item.role for item in report.backends if (item.backend, item.revision) == (line.backend, line.revision)
        )
        time = compared.get((line.backend, line.revision))
        if time is None and role != "anchor":
            continue
        middle, low, high = (time.ratio, time.low, time.high) if time else (1.0, 1.0, 1.0)
        note = "emulated" if line.backend.startswith("emulated-") else ""
        worst = max(line.median, line.worst)
        marks.append(Mark(line.backend, role, line.median, line.median, worst, middle, low, high, note))
    if not marks:
        return None
    shas = {item.backend: item.commit for item in report.subjects if item.revision == "base"}
    path = tuple(
        Step(line.backend, shas.get(line.backend, ""), "the base", line.median, time.ratio)
        for line in lines
        if line.revision == "base" and (time := compared.get((line.backend, "base")))
    )
    ceiling = findings.limit_of_metric(policy, f"{chosen}_error")
    data = ParetoData(tuple(marks), anchor, tensor=chosen, ceiling=ceiling, path=path)
    caption = (
        f"Median {tensor(chosen)} error on {shown}, against the time of {case} on {report.environment.device_name}. "
        "Bars reach to the worst slice, the dotted line is the frontier."
    )
    if path:
        caption += " A line leads from the base to what is under test."
    if any(mark.note for mark in marks):
        caption += " Emulated backends show a kernel's rounding, not its speed."
    return Section(
        "accuracy-speed",
        "Accuracy against speed",
        f"{number(len(marks))} backends, measured in one session",
        (
            Choice("input", "Input set", choice.outline.inputs, shown, {}),
            Choice("tensor", "Tensor", tuple(TENSORS), chosen, {name: str(tensor(name)) for name in TENSORS}),
            Choice("case", "Timed case", choice.outline.compared, case, {}),
        ),
        drawings.pareto(data, caption),
    )


def throughput(report: Report, choice: Shown, policy: Mapping[str, Any] | None) -> Section | None:
    """Paired ratios of one case, the ones that the gate reads first; times, achieved TFLOP/s, launch, CUDA graph and
    memory beside them, and the kernels of each backend."""
    if report.throughput is None:
        return None
    cases, case = choice.outline.measured, choice.timed_case
    compared = [
        item for item in report.throughput.comparisons if item.pass_ == "forward_backward" and item.case == case
    ]
    margin = policy.get("kernel_time_increase") if policy else None
    caption = (
        f"Forward and backward time of {case} in interleaved pairs, measured in one session. {_legend(compared)} "
        "an A/A control times the same code in two processes and shows the noise."
    )
    measured = [item for item in report.throughput.measurements if item.case == case]
    passes = [key for key in PASSES if any(item.pass_ == key for item in measured)]
    by_pass = {(item.backend, item.revision, item.pass_): item for item in measured}
    launched = [key for key in passes if any(item.pass_ == key and item.host_seconds is not None for item in measured)]
    graphed = [
        key
        for key in passes
        if any(item.pass_ == key and (item.graph_seconds is not None or item.graph_detail) for item in measured)
    ]
    has_memory = any(item.peak_memory_bytes is not None for item in measured)
    rows = []
    for backend, revision in dict.fromkeys((item.backend, item.revision) for item in measured):
        found = [by_pass.get((backend, revision, key)) for key in passes]
        peaks = [item.peak_memory_bytes for item in found if item and item.peak_memory_bytes is not None]
        peak = [Cell(memory(max(peaks, default=None)))] if has_memory else []
        launches = [_launch(by_pass.get((backend, revision, key))) for key in launched]
        graphs = [_graph(by_pass.get((backend, revision, key))) for key in graphed]
        rows.append((Cell(label(backend, revision)), *map(_timing, found), *launches, *graphs, *peak))
    ceilings = report.throughput.ceilings
    notes = []
    if ceilings:
        notes.append(
            f"In the same session the device reached {flops(ceilings.matmul_tflops)} in a square BF16 matrix "
            f"product (what the shares are of) and {number(ceilings.copy_gb_s)} GB/s in a copy within its memory."
        )
    if launched:
        notes.append("Launch is the host's time to enqueue the call; it is no part of the times before it.")
    if graphed:
        notes.append("A CUDA graph replays a pass without its launches.")
    return Section(
        "throughput",
        "Speed",
        _pairs_words(compared),
        (Choice("case", "Timed case", cases, case, {}),) if len(cases) > 1 else (),
        _ratios(compared, margin, caption, "ratios") if compared else None,
        f"Median time of one call of {case}"
        + ("; under it achieved FLOP/s" if any(item.tflops is not None for item in measured) else "")
        + (" and their share of the device's matrix product" if ceilings else ""),
        (
            "Backend",
            *(pass_name(key).capitalize() for key in passes),
            *(f"Launch, {pass_name(key)}" for key in launched),
            *(f"CUDA graph, {pass_name(key)}" for key in graphed),
            *(["Peak memory"] if has_memory else []),
        ),
        tuple(rows),
        " ".join(notes),
        report_kernels.folds(report.throughput.kernels, case),
    )


def _timing(item: Measurement | None) -> Cell:
    if item is None:
        return Cell(DASH)
    achieved = "" if item.tflops is None else flops(item.tflops)
    of_ceiling = "" if item.ceiling_share is None else share(item.ceiling_share)
    more = _median_of(item.seconds, "calls")
    return Cell(seconds(item.median_seconds), more=more, sub=", ".join(part for part in (achieved, of_ceiling) if part))


def _median_of(times: Sequence[float], what: str) -> str:
    """'median of 20 calls'; of an old report the median alone is kept."""
    return f"median of {number(len(times))} {what}" if len(times) > 1 else f"median; the {what} are not kept one by one"


def _launch(item: Measurement | None) -> Cell:
    if item is None or item.host_seconds is None:
        return Cell(DASH)
    slower = item.host_seconds > item.median_seconds
    return Cell(seconds(item.host_seconds), sub="longer than it runs" if slower else "")


def _graph(item: Measurement | None) -> Cell:
    if item is None or item.graph_seconds is None:
        detail = item.graph_detail if item else None
        return Cell("not possible", more=clean(detail), sub=first_line(detail, 60)) if detail else Cell(DASH)
    return Cell(seconds(item.graph_seconds))


def step(report: Report, policy: Mapping[str, Any] | None) -> Section | None:
    """Training steps: time, overhead against the anchor with its interval, share of attention, loss, memory."""
    if report.step is None:
        return None
    anchor = anchor_of(report)
    over = {
        (item.backend, item.revision, item.case): item
        for item in report.step.comparisons
        if item.against_backend == anchor and item.against_revision == "ruler" and not item.control
    }
    limit = policy.get("step_overhead_ceiling") if policy else None
    roles = {(item.backend, item.revision): item.role for item in report.backends}
    rows = []
    for item in report.step.measurements:
        key = (item.backend, item.revision)
        compared = over.get((*key, item.model))
        rows.append(
            (
                Cell(label(*key)),
                Cell(item.model),
                Cell(seconds(item.median_seconds), more=_median_of(item.seconds, "steps")),
                Cell("the anchor") if roles[key] == "anchor" else _overhead(compared, limit),
                Cell(fraction(item.attention_share)),
                Cell(f"{item.loss:.4f}"),
                Cell(memory(item.peak_memory_bytes)),
            )
        )
    caption = (
        "Time of whole training steps (forward, loss, backward, optimiser) in interleaved pairs. "
        f"{_legend(report.step.comparisons)} the A/A control trains with the same code in two processes."
    )
    margin = policy.get("step_overhead_increase") if policy else None
    return Section(
        "step",
        "Training step",
        _pairs_words(report.step.comparisons),
        (),
        _ratios(report.step.comparisons, margin, caption, "step-ratios") if report.step.comparisons else None,
        "One training step with each backend as the model's attention; the loss is that of the same number of steps on "
        "the same data",
        ("Backend", "Model", "Step", f"Over {anchor or 'the anchor'}", "Share of attention", "Loss", "Peak memory"),
        tuple(rows),
    )


def _overhead(compared: Comparison | None, limit: float | None) -> Cell:
    if compared is None:
        return Cell(DASH)
    return Cell(
        signed_percent(compared.ratio - 1),
        limit is not None and compared.low - 1 > limit,
        sub=f"{signed_percent(compared.low - 1)} … {signed_percent(compared.high - 1)}",
    )


def _ratios(compared: Iterable[Comparison], margin: float | None, caption: str, key: str) -> Any:
    found = [item for item in compared if item.revision != "base" or item.control]
    several = len({item.case for item in found}) > 1
    ranked = sorted(found, key=lambda item: 0 if item.against_revision == "base" else 1 if item.control else 2)
    labelled = [(_label(item) + (f", {item.case}" if several else ""), item) for item in ranked]
    return drawings.paired_ratios(labelled, caption, key, margin)


def _label(item: Comparison) -> str:
    if item.control:
        return f"{item.backend} A/A control"
    against = item.against_backend if item.against_backend != item.backend else "base"
    return f"{label(item.backend, item.revision)} ÷ {against}"


def _legend(compared: Iterable[Comparison]) -> str:
    """What dots and bars are; with several processes the interval is one of their medians."""
    several = any(item.processes > 1 for item in compared)
    middle = "the mean of the processes’ medians" if several else "their median"
    return f"Dots are pairs, the bar is the interval of {middle};"


def _pairs_words(compared: Iterable[Comparison]) -> str:
    """'20 … 80 interleaved pairs each over 5 processes, 3 void'."""
    found = list(compared)
    if not found:
        return "nothing to compare with"
    pairs = _span(item.pairs for item in found)
    processes = _span(item.processes for item in found)
    over = "" if processes == "1" else f" over {processes} processes"
    void = sum(item.void_pairs for item in found)
    return f"{pairs} interleaved pairs each{over}, " + (
        f"{number(void)} void: the GPU was slowed down" if void else "none void"
    )


def _span(values: Iterable[int]) -> str:
    found = sorted(values)
    return number(found[0]) if found[0] == found[-1] else f"{number(found[0])} … {number(found[-1])}"
