"""Turns a suite report into the parts of a job's page: failures, slices, timings, environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gprojci_dashboards.charts.paired_ratios import Comparison, PairedRatiosData
from gprojci_dashboards.charts.slices_heatmap import HeatmapData
from gprojci_service.pages import drawings, findings
from gprojci_service.pages.formatting import absolute, duration, fraction, memory, moment, number, tensor
from gprojci_service.pages.scatter import PREFERRED_INPUT, pick
from gprojci_service.pages.schemas import (
    AccuracyView,
    Cell,
    FailedBackend,
    FindingView,
    SliceRow,
    ThroughputView,
    TimingRow,
)
from gprojci_suite.contract.report import Report, Slice
from gprojci_suite.contract.vocabulary import Pass

TENSORS = ["dq", "dk", "dv", "o"]
PASSES: dict[Pass, str] = {"forward": "forward", "backward": "backward", "forward_backward": "forward + backward"}


def label(backend: str, revision: str) -> str:
    """How a column names a backend: the head's plainly, the base's marked."""
    return f"{backend} (base)" if revision == "base" else backend


def failed(report: Report) -> tuple[FailedBackend, ...]:
    """Backends without a result, the subjects first."""
    found = [entry for entry in report.backends if entry.status != "ok"]
    found.sort(key=lambda entry: (entry.role != "subject", entry.status == "unsupported"))
    return tuple(FailedBackend(label(entry.backend, entry.revision), entry.status, entry.detail) for entry in found)


def accuracy(
    report: Report, policy: Mapping[str, Any] | None, evidence: tuple[FindingView, ...], choices: Mapping[str, str]
) -> AccuracyView | None:
    """Errors of one tensor on one input set, slice by backend; by default where the gate failed worst."""
    if report.accuracy is None or not report.accuracy.slices:
        return None
    inputs = [entry.input for entry in report.inputs]
    worst = next(
        (item for item in evidence if item.verdict == "fail" and item.check.partition("_")[0] in TENSORS), None
    )
    preferred = worst.where.split(" · ")[0] if worst else PREFERRED_INPUT
    shown = pick(choices.get("input"), inputs, preferred if preferred in inputs else PREFERRED_INPUT)
    chosen = pick(choices.get("tensor"), TENSORS, worst.check.partition("_")[0] if worst else "")
    found = [item for item in report.accuracy.slices if (item.input, item.tensor) == (shown, chosen)]
    order = {(entry.backend, entry.revision): place for place, entry in enumerate(report.backends)}
    role = {(entry.backend, entry.revision): entry.role for entry in report.backends}
    columns = sorted(
        {(item.backend, item.revision) for item in found}, key=lambda key: (role[key] != "subject", order[key])
    )
    by_slice: dict[str, dict[tuple[str, str], Slice]] = {}
    for item in found:
        by_slice.setdefault(item.slice, {})[item.backend, item.revision] = item
    limit = findings.limit_of_metric(policy, f"{chosen}_error")
    rows = tuple(
        SliceRow(
            name,
            any(item.vanishing for item in items.values()),
            tuple(_cell(items.get(column), limit) for column in columns),
        )
        for name, items in by_slice.items()
    )
    names = tuple(label(*column) for column in columns)
    words = str(tensor(chosen))
    heat = HeatmapData(
        words,
        tuple(by_slice),
        names,
        tuple(
            tuple(items[column].rel_err if column in items else None for column in columns)
            for items in by_slice.values()
        ),
        limit,
    )
    against = f"; the colours turn at the gate's limit of {fraction(limit)}" if limit is not None else ""
    return AccuracyView(
        inputs=tuple(inputs),
        input=shown,
        tensor=chosen,
        words=f"{words} on {shown}: {number(len(by_slice))} slices, {number(len(columns))} backends",
        caption=f"Relative {words} error of each slice (layer, batch, head)",
        columns=names,
        rows=rows,
        heatmap=drawings.heatmap(heat, f"Relative error of {words} against float64{against}."),
    )


def _cell(item: Slice | None, limit: float | None) -> Cell:
    if item is None:
        return Cell("–")
    more = f"p99.9 {fraction(item.p999)}, cosine {item.cosine:.6f}, scaled {fraction(item.scaled_abs_err)}"
    if item.nonfinite:
        return Cell(f"{number(item.nonfinite)} NaN/Inf", True, more)
    return Cell(fraction(item.rel_err), limit is not None and item.rel_err > limit and not item.vanishing, more)


def throughput(report: Report, policy: Mapping[str, Any] | None) -> ThroughputView | None:
    """Paired ratios, the ones that the gate reads first, and the medians of single calls."""
    if report.throughput is None:
        return None
    cases = {item.case for item in report.throughput.measurements}
    comparisons = []
    for item in report.throughput.comparisons:
        if item.pass_ != "forward_backward":
            continue
        against = f"{item.against_backend}" if item.against_backend != item.backend else "base"
        name = (
            f"{label(item.backend, item.revision)} ÷ {against}" if not item.control else f"{item.backend} A/A control"
        )
        if item.revision == "base" and not item.control:
            continue
        if len(cases) > 1:
            name = f"{name}, {item.case}"
        rank = 0 if item.against_revision == "base" else 1 if item.control else 2
        comparisons.append((rank, Comparison(name, item.ratios, item.ratio, item.low, item.high, item.control)))
    comparisons.sort(key=lambda pair: pair[0])
    margin = policy.get("kernel_time_increase") if policy else None
    passes = [key for key in PASSES if any(item.pass_ == key for item in report.throughput.measurements)]
    medians = {
        (item.backend, item.revision, item.case, item.pass_): item.median_seconds
        for item in report.throughput.measurements
    }
    rows = []
    for backend, revision, case in dict.fromkeys(key[:3] for key in medians):
        rows.append(
            TimingRow(
                label(backend, revision), case, tuple(medians.get((backend, revision, case, key)) for key in passes)
            )
        )
    pairs = report.throughput.comparisons[0].pairs if report.throughput.comparisons else 0
    caption = (
        "Forward and backward time of interleaved pairs, measured in one session. Dots are pairs, the bar is the "
        "interval of their median; the A/A control times the same code in two processes and shows the noise."
    )
    data = PairedRatiosData(tuple(item for _, item in comparisons), margin)
    return ThroughputView(
        words=f"{number(pairs)} interleaved pairs and more, {'one case' if len(cases) == 1 else f'{len(cases)} cases'}",
        drawing=drawings.paired_ratios(data, caption),
        passes=tuple(PASSES[key] for key in passes),
        rows=tuple(rows),
    )


def environment(report: Report, base_sha: str | None) -> tuple[tuple[str, str], ...]:
    """Facts of the session that its numbers depend on."""
    facts = report.environment
    heads = {item.revision: item.commit for item in report.subjects}
    began = moment(report.created_at)
    rows = [
        ("Device", facts.device_name),
        ("Hardware class", facts.hardware),
        ("Head revision", heads.get("head", "none built")),
        ("Base revision", heads.get("base", base_sha or "none")),
        ("Ruler", f"gprojci-suite {report.ruler.version} at {report.ruler.revision}"),
        ("Platform", facts.platform),
        ("Python, torch", f"{facts.python}, {facts.torch}"),
        ("CUDA, driver", ", ".join(part for part in (facts.cuda, facts.driver) if part)),
        ("CPUs, threads", f"{facts.cpu_count}, {facts.threads}"),
        ("Memory", memory(facts.memory_bytes)),
        ("Packages", ", ".join(f"{name} {version}" for name, version in sorted(facts.packages.items()))),
        ("Clocks", ", ".join(f"{name} {number(value)} MHz" for name, value in (facts.clocks or {}).items())),
        ("Slowed down by", ", ".join(facts.throttle_reasons) or ("nothing" if facts.device == "cuda" else "")),
        ("Network", facts.network),
        ("Seed", str(report.seed)),
        ("Began", f"{absolute(began)}, took {duration(report.duration_seconds)}" if began else ""),
    ]
    return tuple((name, value) for name, value in rows if value)
