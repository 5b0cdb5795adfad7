"""The gate's decision: limits of a manifest against a report. The one place where significance is decided.

Accuracy. For each gated backend, input set and tensor: the median of the slices that do not vanish against a ceiling,
the worst such slice against another, and the median over the base's median against a ratio, which is widened by the
run-to-run spread that either of them showed in the session. Errors are relative Frobenius errors against float64 (see
`gprojci_suite`). NaN or Inf in any output fails, whatever the limits.

Symmetry. The median response of dQ to a shift of all keys, over the slices that do not vanish, against a ceiling.

Time, of attention and of a training step. The interval of the median paired ratio against `1 + limit`: fail when the
whole interval lies above it, pass when the whole interval lies below it, otherwise neutral: it cannot be told.

Memory, spilled registers and repeats are the same in every run: `budgets` holds them against their limits.

Each limit is the one that `policy` finds for the backend and the case.

The whole. Fail if any finding that decides failed; else error if any could not be judged for a fault of ours; else
neutral if any cannot be told; else pass. Findings under `informative` never decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from gprojci_dashboards.readable import multiple, percent, signed_percent
from gprojci_service.gate import budgets
from gprojci_service.gate.finding import SEVERITY, Decision, Finding, VerdictWord, unmeasured
from gprojci_service.gate.policy import Policy
from gprojci_suite.contract.manifest import GateSettings
from gprojci_suite.contract.report import AccuracySummary, Backend, Report
from gprojci_suite.contract.timing import Comparison
from gprojci_suite.contract.vocabulary import TENSORS

SUMMARY_LIMIT = 140
"""Characters of a summary: what GitHub takes as the description of a status."""
MACHINERY = ("lost_worker", "checkout_error")
"""Failure kinds that say nothing about the kernel."""
NAMES = {"o": "O", "dq": "dQ", "dk": "dK", "dv": "dV"}


def decide(settings: GateSettings, report: Report, gated: Iterable[str], *, hardware: str | None = None) -> Decision:
    """Applies a policy to a report.

    Args:
        settings: the limits, as the base commit's manifest sets them.
        report: what the head's attempt measured.
        gated: names of the backends that must satisfy it.
        hardware: the job's hardware class, for rules that are restricted to one.
    """
    policy = Policy(settings, report, hardware)
    return whole([finding for backend in gated for finding in _of_backend(policy, report, backend)])


def whole(unsorted: Iterable[Finding]) -> Decision:
    """The decision that findings add up to."""
    findings = list(unsorted)
    findings.sort(key=lambda finding: (not finding.required, SEVERITY.index(finding.verdict), -finding.excess))
    deciding = {finding.verdict for finding in findings if finding.required}
    verdict: VerdictWord = next((word for word in SEVERITY if word in deciding), "neutral")
    return Decision(verdict, _summary(verdict, findings), tuple(findings))


def without_report(kind: str, detail: str) -> Decision:
    """The decision on a job without a report: the machinery's faults are errors, the kernel's own are failures."""
    first_line = detail.strip().splitlines()[0] if detail.strip() else "no detail"
    return of_one("error" if kind in MACHINERY else "fail", f"{kind.replace('_', ' ')}: {first_line}")


def of_one(verdict: VerdictWord, message: str) -> Decision:
    """A decision that one fact makes, whatever the limits."""
    return Decision(verdict, message[:SUMMARY_LIMIT], (Finding("status", "", verdict, message),))


def _summary(verdict: VerdictWord, findings: list[Finding]) -> str:
    deciding = [finding for finding in findings if finding.required and finding.verdict == verdict]
    if verdict == "pass":
        return f"{len(deciding)} of {len(deciding)} limits hold"
    if not deciding:
        return "nothing is gated: the base's manifest sets no limits"
    more = f" (+{len(deciding) - 1} more)" if len(deciding) > 1 else ""
    return deciding[0].message[: SUMMARY_LIMIT - len(more)] + more


def _of_backend(policy: Policy, report: Report, backend: str) -> Iterator[Finding]:
    head = _status(report, backend, "head")
    if head is None:
        yield Finding("status", backend, "fail", f"{backend} is not in the head's manifest")
        return
    if head.status != "ok":
        message = f"{backend} {head.status.replace('_', ' ')}: {head.detail or 'no detail'}"
        yield Finding("status", backend, "fail", message[:500])
        return
    yield from _accuracy(policy, report, backend)
    yield from _symmetry(policy, report, backend)
    yield from _times(policy, report, backend)
    yield from budgets.peak_memory(policy, report, backend, has_base=_status(report, backend, "base") is not None)
    yield from budgets.spilled_registers(policy, report, backend)
    yield from budgets.repeats(policy, report, backend)
    for key, limit, cases in policy.unmet(backend):
        where = f" on {cases}" if cases else ""
        yield unmeasured(key, limit, backend, f"what {key} limits{where}")


def _status(report: Report, backend: str, revision: str) -> Backend | None:
    return next((entry for entry in report.backends if (entry.backend, entry.revision) == (backend, revision)), None)


def _accuracy(policy: Policy, report: Report, backend: str) -> Iterator[Finding]:
    measured = [entry.input for entry in report.inputs]
    for missing in [name for name in policy.settings.inputs or () if name not in measured]:
        message = f"{backend}: input set {missing} is gated but was not measured"
        yield Finding("inputs", backend, "fail", message, case=missing)
    lines = {
        (line.revision, line.input, line.tensor): line
        for line in (report.accuracy.summary if report.accuracy else ())
        if line.backend == backend and (policy.settings.inputs is None or line.input in policy.settings.inputs)
    }
    for tensor in TENSORS:
        of_head = [line for line in lines.values() if (line.revision, line.tensor) == ("head", tensor)]
        for line in of_head:
            base = lines.get(("base", line.input, tensor))
            if line.nonfinite:
                yield _nonfinite(line)
            else:
                yield from _ceilings(policy, line, base)
                yield from _error_ratio(policy, line, base)
        for key in (f"{tensor}_error_ceiling", f"{tensor}_worst_ceiling", f"{tensor}_error_ratio"):
            own = policy.own(key)
            if own is not None and not of_head:
                yield unmeasured(key, own, backend, f"the error of {NAMES[tensor]}")


def _nonfinite(line: AccuracySummary) -> Finding:
    message = f"{line.backend}: {line.nonfinite} elements of {NAMES[line.tensor]} on {line.input} are NaN or Inf"
    return Finding(
        "nonfinite",
        line.backend,
        "fail",
        message,
        case=line.input,
        slice=line.worst_slice or None,
        value=float(line.nonfinite),
        limit=0.0,
    )


def _ceilings(policy: Policy, line: AccuracySummary, base: AccuracySummary | None) -> Iterator[Finding]:
    where = f"{line.backend}: {NAMES[line.tensor]} error on {line.input}"
    kinds = (
        ("error_ceiling", "median", line.median, base.median if base else None),
        ("worst_ceiling", "worst slice", line.worst, base.worst if base else None),
    )
    for suffix, kind, value, before in kinds:
        key = f"{line.tensor}_{suffix}"
        limit = policy.limit(key, line.backend, line.input)
        if limit is not None:
            verdict, message = _against_ceiling(where, kind, value, limit.value, line.worst_slice, line.worst)
            yield Finding(
                key,
                line.backend,
                verdict,
                message,
                case=line.input,
                slice=line.worst_slice or None,
                value=value,
                limit=limit.value,
                line=limit.line,
                worst=line.worst,
                base=before,
                required=limit.required,
            )


def _error_ratio(policy: Policy, line: AccuracySummary, base: AccuracySummary | None) -> Iterator[Finding]:
    key = f"{line.tensor}_error_ratio"
    set_limit = policy.limit(key, line.backend, line.input)
    if set_limit is None:
        return
    where = f"{line.backend}: {NAMES[line.tensor]} error on {line.input}"
    spread = max(line.spread or 0.0, (base.spread or 0.0) if base else 0.0)
    limit, value = set_limit.value * (1 + spread), None
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
            f"{where} is {multiple(value)} the base's ({percent(base.median)} → {percent(line.median)}), "
            f"limit {limit:.4g}×{widened}"
        )
    yield Finding(
        key,
        line.backend,
        verdict,
        message,
        case=line.input,
        slice=line.worst_slice or None,
        value=value,
        limit=limit,
        line=set_limit.line,
        worst=line.worst,
        base=base.median if base else None,
        required=set_limit.required and base is not None,
    )


def _symmetry(policy: Policy, report: Report, backend: str) -> Iterator[Finding]:
    key = "dq_symmetry_ceiling"
    own = policy.own(key)
    inputs = {entry.input for entry in report.inputs}
    gated = policy.settings.inputs
    responses = [
        line
        for line in (report.symmetry.summary if report.symmetry else ())
        if (line.backend, line.response) == (backend, "dq_key_shift")
    ]
    lines = [line for line in responses if line.revision == "head"]
    lines = [line for line in lines if gated is None or line.case in gated or line.case not in inputs]
    before = {line.case: line.median for line in responses if line.revision == "base"}
    if not lines and own is not None:
        yield unmeasured(key, own, backend, "the response of dQ to a shift of the keys")
    for line in lines:
        limit = policy.limit(key, backend, line.case)
        if limit is None:
            continue
        where = f"{backend}: response of dQ to a shift of the keys on {line.case}"
        verdict, message = _against_ceiling(where, "median", line.median, limit.value, line.worst_slice, line.worst)
        yield Finding(
            key,
            backend,
            verdict,
            message,
            case=line.case,
            slice=line.worst_slice or None,
            value=line.median,
            limit=limit.value,
            line=limit.line,
            worst=line.worst,
            base=before.get(line.case),
            required=limit.required,
        )


def _against_ceiling(
    where: str, kind: str, value: float, limit: float, worst_slice: str, worst: float
) -> tuple[VerdictWord, str]:
    if math.isnan(value):
        return "neutral", f"{where} cannot be told: every slice vanishes"
    words = f"{where} is {percent(value)} ({kind}), limit {percent(limit)}; worst head {worst_slice} {percent(worst)}"
    return "pass" if value <= limit else "fail", words


def _times(policy: Policy, report: Report, backend: str) -> Iterator[Finding]:
    anchors = {entry.backend for entry in report.backends if entry.role == "anchor"}
    kernel = [
        entry
        for entry in (report.throughput.comparisons if report.throughput else ())
        if entry.pass_ == "forward_backward"
    ]
    step = list(report.step.comparisons) if report.step else []
    has_base = _status(report, backend, "base") is not None
    for what, against_base, against_anchor, compared in (
        ("forward and backward", "kernel_time_increase", "kernel_overhead_ceiling", kernel),
        ("training step", "step_overhead_increase", "step_overhead_ceiling", step),
    ):
        of_head = [entry for entry in compared if (entry.backend, entry.revision) == (backend, "head")]
        to_base = [entry for entry in of_head if (entry.against_backend, entry.against_revision) == (backend, "base")]
        to_anchor = [entry for entry in of_head if entry.against_backend in anchors]
        yield from _ratios(policy, against_base, backend, f"{what} time", "the base's", to_base, decides=has_base)
        yield from _ratios(policy, against_anchor, backend, f"{what} time", "the anchor's", to_anchor, decides=True)


def _ratios(
    policy: Policy,
    key: str,
    backend: str,
    what: str,
    whose: str,
    compared: list[Comparison],
    *,
    decides: bool,
) -> Iterator[Finding]:
    own = policy.own(key)
    if not compared and own is not None:
        yield unmeasured(key, own, backend, f"{what} over {whose}", decides=decides)
    for entry in (entry for entry in compared if not entry.control):
        limit = policy.limit(key, backend, entry.case)
        if limit is None:
            continue
        low, high = entry.low - 1, entry.high - 1
        verdict: VerdictWord = "fail" if low > limit.value else "pass" if high < limit.value else "neutral"
        message = (
            f"{backend}: {what} on {entry.case} is {signed_percent(entry.ratio - 1)} over {whose} "
            f"(interval {signed_percent(low)} to {signed_percent(high)}, {entry.pairs} pairs), "
            f"limit {signed_percent(limit.value)}"
        )
        yield Finding(
            key,
            backend,
            verdict,
            message,
            case=entry.case,
            value=entry.ratio - 1,
            limit=limit.value,
            line=limit.line,
            low=low,
            high=high,
            required=decides and limit.required,
        )
