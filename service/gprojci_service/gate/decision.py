"""The gate's decision: limits of a manifest against a report. The one place where significance is decided.

Accuracy. For each gated backend, input set and tensor: the median of the slices that do not vanish against a ceiling,
the worst such slice against another, and the median over the base's median against a ratio, which is widened by the
run-to-run spread that either of them showed in the session. Errors are relative Frobenius errors against float64 (see
`gprojci_suite`). NaN or Inf in any output fails, whatever the limits.

Symmetry. The median response of dQ to a shift of all keys, over the slices that do not vanish, against a ceiling.

Time, of attention and of a training step. The interval of the median paired ratio against `1 + limit`: fail when the
whole interval lies above it, pass when the whole interval lies below it, otherwise neutral: it cannot be told.

The whole. Fail if any finding that decides failed; else error if any could not be judged for a fault of ours; else
neutral if any cannot be told; else pass. Findings under `informative` never decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gprojci_dashboards.readable import percent
from gprojci_suite.contract.manifest import GateSettings
from gprojci_suite.contract.report import AccuracySummary, Backend, Report
from gprojci_suite.contract.timing import Comparison
from gprojci_suite.contract.vocabulary import TENSORS

VerdictWord = Literal["pass", "fail", "neutral", "error"]
SEVERITY: tuple[VerdictWord, ...] = ("fail", "error", "neutral", "pass")


@dataclass(frozen=True)
class Finding:
    """One limit applied to one measured value."""

    limit_key: str
    """Key of the gate in the manifest, or `status` and `nonfinite`, which always hold."""
    backend: str
    case: str | None
    """Input set, or shape × mask × dtype."""
    slice: str | None
    """The worst slice (layer, batch, head) of an accuracy finding."""
    verdict: VerdictWord
    value: float | None
    """What is held against the limit: a fraction, or a ratio for the `_ratio` limits."""
    limit: float | None
    worst: float | None
    """Error of the worst slice, a fraction."""
    base: float | None
    """The base's value, where the limit is about it."""
    low: float | None
    high: float | None
    """Interval of the value, where it has one."""
    required: bool
    """Whether it takes part in the verdict."""
    message: str
    """All of this in one sentence."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for the `evidence` of a verdict; a value that is not finite becomes null, the message says it."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Decision:
    """A verdict with its findings, the deciding ones first."""

    verdict: VerdictWord
    summary: str
    findings: tuple[Finding, ...]


def decide(policy: GateSettings, report: Report, gated: Iterable[str]) -> Decision:
    """Applies a policy to a report.

    Args:
        policy: the limits, as the base commit's manifest sets them.
        report: what the head's attempt measured.
        gated: names of the backends that must satisfy it.
    """
    findings = [finding for backend in gated for finding in _of_backend(policy, report, backend)]
    findings.sort(key=lambda finding: (not finding.required, SEVERITY.index(finding.verdict), -_excess(finding)))
    deciding = {finding.verdict for finding in findings if finding.required}
    verdict: VerdictWord = next((word for word in SEVERITY if word in deciding), "neutral")
    return Decision(verdict, _summary(verdict, findings), tuple(findings))


def without_report(kind: str, detail: str) -> Decision:
    """The decision on a job without a report: the machinery's faults are errors, the kernel's own are failures."""
    verdict: VerdictWord = "error" if kind in ("lost_worker", "checkout_error") else "fail"
    first_line = detail.strip().splitlines()[0] if detail.strip() else "no detail"
    message = f"{kind.replace('_', ' ')}: {first_line}"
    finding = Finding("status", "", None, None, verdict, None, None, None, None, None, None, True, message)
    return Decision(verdict, message[:140], (finding,))


def _of_backend(policy: GateSettings, report: Report, backend: str) -> Iterator[Finding]:
    head = _status(report, backend, "head")
    if head is None or head.status != "ok":
        reason = (
            f"{head.status.replace('_', ' ')}: {head.detail or 'no detail'}"
            if head
            else "is not in the head's manifest"
        )
        yield Finding(
            "status", backend, None, None, "fail", None, None, None, None, None, None, True, f"{backend} {reason}"[:500]
        )
        return
    summaries = {
        (line.revision, line.input, line.tensor): line
        for line in (report.accuracy.summary if report.accuracy else ())
        if line.backend == backend
    }
    measured = [entry.input for entry in report.inputs]
    inputs = [name for name in measured if policy.inputs is None or name in policy.inputs]
    for missing in [name for name in policy.inputs or () if name not in measured]:
        message = f"{backend}: input set {missing} is gated but was not measured"
        yield Finding("inputs", backend, missing, None, "fail", None, None, None, None, None, None, True, message)
    for input_name in inputs:
        for tensor in TENSORS:
            line = summaries.get(("head", input_name, tensor))
            if line is not None:
                yield from _accuracy(policy, backend, line, summaries.get(("base", input_name, tensor)))
    yield from _symmetry(policy, report, backend)
    yield from _times(policy, report, backend)


def _status(report: Report, backend: str, revision: str) -> Backend | None:
    return next((entry for entry in report.backends if (entry.backend, entry.revision) == (backend, revision)), None)


def _accuracy(
    policy: GateSettings, backend: str, line: AccuracySummary, base: AccuracySummary | None
) -> Iterator[Finding]:
    tensor = _name(line.tensor)
    where = f"{backend}: {tensor} error on {line.input}"
    if line.nonfinite:
        message = f"{backend}: {line.nonfinite} elements of {tensor} on {line.input} are NaN or Inf"
        yield Finding(
            "nonfinite",
            backend,
            line.input,
            line.worst_slice or None,
            "fail",
            float(line.nonfinite),
            0.0,
            None,
            None,
            None,
            None,
            True,
            message,
        )
        return
    for key, value in ((f"{line.tensor}_error_ceiling", line.median), (f"{line.tensor}_worst_ceiling", line.worst)):
        if key not in policy.limits:
            continue
        limit = policy.limits[key]
        kind = "median" if key.endswith("_error_ceiling") else "worst slice"
        if not math.isfinite(value):
            verdict: VerdictWord = "neutral"
            message = f"{where} cannot be told: every slice vanishes"
        else:
            verdict = "pass" if value <= limit else "fail"
            message = (
                f"{where} is {percent(value)} ({kind}), limit {percent(limit)}; "
                f"worst head {line.worst_slice} {percent(line.worst)}"
            )
        yield Finding(
            key,
            backend,
            line.input,
            line.worst_slice or None,
            verdict,
            value,
            limit,
            line.worst,
            base.median if base else None,
            None,
            None,
            key not in policy.informative,
            message,
        )
    yield from _accuracy_ratio(policy, where, line, base)


def _accuracy_ratio(
    policy: GateSettings, where: str, line: AccuracySummary, base: AccuracySummary | None
) -> Iterator[Finding]:
    key = f"{line.tensor}_error_ratio"
    if key not in policy.limits:
        return
    spread = max(line.spread or 0.0, (base.spread or 0.0) if base else 0.0)
    limit, value = policy.limits[key] * (1 + spread), None
    if base is None or not math.isfinite(base.median) or not math.isfinite(line.median) or base.median == 0:
        verdict: VerdictWord = "neutral"
        message = f"{where} cannot be compared: the base has no value"
    elif not math.isfinite(limit):
        verdict = "neutral"
        message = f"{where} cannot be compared: it differs from run to run without bound"
    else:
        value = line.median / base.median
        verdict = "pass" if value <= limit else "fail"
        widened = f" (widened by a run-to-run spread of {percent(spread)})" if spread else ""
        message = (
            f"{where} is {value:,.3g} × the base's ({percent(base.median)} → {percent(line.median)}), "
            f"limit {limit:.4g} ×{widened}"
        )
    yield Finding(
        key,
        line.backend,
        line.input,
        line.worst_slice or None,
        verdict,
        value,
        limit,
        line.worst,
        base.median if base else None,
        None,
        None,
        key not in policy.informative and base is not None,
        message,
    )


def _symmetry(policy: GateSettings, report: Report, backend: str) -> Iterator[Finding]:
    key = "dq_symmetry_ceiling"
    if key not in policy.limits:
        return
    limit, required = policy.limits[key], key not in policy.informative
    inputs = {entry.input for entry in report.inputs}
    lines = [
        line
        for line in (report.symmetry.summary if report.symmetry else ())
        if (line.backend, line.revision, line.response) == (backend, "head", "dq_key_shift")
        and (policy.inputs is None or line.case in policy.inputs or line.case not in inputs)
    ]
    if not lines:
        message = f"{backend}: the response of dQ to a shift of the keys was not measured"
        yield Finding(key, backend, None, None, "neutral", None, limit, None, None, None, None, required, message)
    for line in lines:
        where = f"{backend}: response of dQ to a shift of the keys on {line.case}"
        if math.isnan(line.median):
            verdict: VerdictWord = "neutral"
            message = f"{where} cannot be told: every slice vanishes"
        else:
            verdict = "pass" if line.median <= limit else "fail"
            message = (
                f"{where} is {percent(line.median)} (median), limit {percent(limit)}; "
                f"worst head {line.worst_slice} {percent(line.worst)}"
            )
        yield Finding(
            key,
            backend,
            line.case,
            line.worst_slice or None,
            verdict,
            line.median,
            limit,
            line.worst,
            None,
            None,
            None,
            required,
            message,
        )


def _times(policy: GateSettings, report: Report, backend: str) -> Iterator[Finding]:
    anchors = {entry.backend for entry in report.backends if entry.role == "anchor"}
    compared = [
        entry
        for entry in (report.throughput.comparisons if report.throughput else ())
        if (entry.backend, entry.revision) == (backend, "head")
        and not entry.control
        and entry.pass_ == "forward_backward"
    ]
    against_base = [entry for entry in compared if (entry.against_backend, entry.against_revision) == (backend, "base")]
    against_anchor = [
        entry for entry in compared if entry.against_backend in anchors and entry.against_revision == "ruler"
    ]
    if "kernel_time_increase" in policy.limits:
        yield from _ratios(
            policy,
            "kernel_time_increase",
            backend,
            against_base,
            "the base's",
            required=_status(report, backend, "base") is not None,
        )
    if "kernel_overhead_ceiling" in policy.limits:
        yield from _ratios(policy, "kernel_overhead_ceiling", backend, against_anchor, "the anchor's", required=True)
    yield from _steps(policy, report, backend, anchors)


def _steps(policy: GateSettings, report: Report, backend: str, anchors: set[str]) -> Iterator[Finding]:
    compared = [
        entry
        for entry in (report.step.comparisons if report.step else ())
        if (entry.backend, entry.revision) == (backend, "head") and not entry.control
    ]
    against_base = [entry for entry in compared if (entry.against_backend, entry.against_revision) == (backend, "base")]
    against_anchor = [
        entry for entry in compared if entry.against_backend in anchors and entry.against_revision == "ruler"
    ]
    has_base = _status(report, backend, "base") is not None
    sides = (
        ("step_overhead_increase", against_base, "the base's", has_base),
        ("step_overhead_ceiling", against_anchor, "the anchor's", True),
    )
    for key, entries, whose, required in sides:
        if key not in policy.limits:
            continue
        if report.step is not None:
            yield from _ratios(policy, key, backend, entries, whose, required=required)
            continue
        message = f"{backend}: {key} cannot be told: the report measures no training step"
        yield Finding(
            key,
            backend,
            None,
            None,
            "neutral",
            None,
            policy.limits[key],
            None,
            None,
            None,
            None,
            key not in policy.informative,
            message,
        )


def _ratios(
    policy: GateSettings, key: str, backend: str, compared: list[Comparison], whose: str, *, required: bool
) -> Iterator[Finding]:
    limit = policy.limits[key]
    required = required and key not in policy.informative
    step = key.startswith("step_")
    what = "training step time" if step else "time"
    timed = "training step" if step else "forward and backward"
    if not compared:
        message = f"{backend}: {what} over {whose} was not measured"
        yield Finding(key, backend, None, None, "neutral", None, limit, None, None, None, None, required, message)
    for entry in compared:
        low, high = entry.low - 1, entry.high - 1
        verdict: VerdictWord = "fail" if low > limit else "pass" if high < limit else "neutral"
        message = (
            f"{backend}: {timed} time on {entry.case} is {_signed(entry.ratio - 1)} over {whose} "
            f"(interval {_signed(low)} to {_signed(high)}, {entry.pairs} pairs), limit {_signed(limit)}"
        )
        yield Finding(
            key, backend, entry.case, None, verdict, entry.ratio - 1, limit, None, None, low, high, required, message
        )


def _name(tensor: str) -> str:
    return {"o": "O", "dq": "dQ", "dk": "dK", "dv": "dV"}[tensor]


def _signed(fraction: float) -> str:
    return f"{fraction * 100:+.1f}%"


def _excess(finding: Finding) -> float:
    """How far a value is beyond its limit, for sorting: the worst first."""
    if finding.value is None or finding.limit is None or not math.isfinite(finding.value):
        return math.inf
    ceiling = finding.limit_key.endswith("_ceiling") and finding.limit > 0
    return finding.value / finding.limit if ceiling else finding.value - finding.limit


def _summary(verdict: VerdictWord, findings: list[Finding]) -> str:
    deciding = [finding for finding in findings if finding.required and finding.verdict == verdict]
    if verdict == "pass":
        return f"{len(deciding)} of {len(deciding)} limits hold"
    if not deciding:
        return "nothing is gated: the base's manifest sets no limits"
    more = f" (+{len(deciding) - 1} more)" if len(deciding) > 1 else ""
    return deciding[0].message[: 140 - len(more)] + more
