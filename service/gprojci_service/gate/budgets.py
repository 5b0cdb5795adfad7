"""Limits of what is the same in every run and needs no interval: GPU memory, spilled registers, repeats of a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gprojci_dashboards.readable import memory, percent, signed_percent, tensor_name
from gprojci_service.gate.finding import Finding, unmeasured
from gprojci_service.gate.policy import Policy
from gprojci_suite.contract.determinism import Repeatability
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.timing import Kernel

PEAK_INCREASE, PEAK_OVERHEAD = "peak_memory_increase", "peak_memory_overhead_ceiling"
SPILLS = "spilled_registers_ceiling"
REPEATS = "repeat_spread_ceiling"


def peak_memory(policy: Policy, report: Report, backend: str, *, has_base: bool) -> Iterator[Finding]:
    """Peak GPU memory of forward and backward and of a training step, over the base's and over the anchor's.

    Without a base what is measured against it does not decide.
    """
    peaks = report.peak_memory()
    anchors = [(entry.backend, "ruler") for entry in report.backends if entry.role == "anchor"]
    for key, others, whose, decides in (
        (PEAK_INCREASE, [(backend, "base")], "the base's", has_base),
        (PEAK_OVERHEAD, anchors, "the anchor's", True),
    ):
        compared = [
            (case, peak, peaks[*other, case])
            for (name, revision, case), peak in peaks.items()
            for other in others
            if (name, revision) == (backend, "head") and (*other, case) in peaks
        ]
        own = policy.own(key)
        if not compared and own is not None:
            yield unmeasured(key, own, backend, f"peak GPU memory over {whose}", decides=decides)
        for case, peak, other_peak in compared:
            limit = policy.limit(key, backend, case)
            if limit is None:
                continue
            over = peak / other_peak - 1
            yield Finding(
                key,
                backend,
                "pass" if peak <= other_peak * (1 + limit.value) else "fail",
                f"{backend}: peak GPU memory on {case} is {memory(peak)}, {signed_percent(over)} over {whose} "
                f"{memory(other_peak)}, limit {signed_percent(limit.value)}",
                case=case,
                value=over,
                limit=limit.value,
                line=limit.line,
                base=float(other_peak),
                required=decides and limit.required,
            )


def spilled_registers(policy: Policy, report: Report, backend: str) -> Iterator[Finding]:
    """Registers that the worst kernel of a case spills to memory.

    Where no limit is set, more than the base spills is told as an early warning: a kernel that begins to spill is
    seldom meant to, and is slow on shapes that nobody timed.
    """
    of_head, of_base = (_worst_spills(report, backend, revision) for revision in ("head", "base"))
    own = policy.own(SPILLS)
    if not of_head and own is not None:
        yield unmeasured(SPILLS, own, backend, "what its kernels spill")
    for case, worst in of_head.items():
        limit, before = policy.limit(SPILLS, backend, case), of_base.get(case)
        spilled, spilled_before = worst.spills or 0, (before.spills or 0) if before else None
        grew = spilled_before is not None and spilled > spilled_before
        if limit is None and not grew:
            continue
        was = "" if spilled_before is None else f" (base {spilled_before})"
        words = "" if limit is None else f", limit {limit.value:g}"
        kernel = f"{worst.kernel} of the {worst.pass_}"
        yield Finding(
            SPILLS,
            backend,
            "neutral" if limit is None else "pass" if spilled <= limit.value else "fail",
            f"{backend}: {spilled} registers of a thread spilled on {case}{was}{words}; worst kernel {kernel}",
            case=case,
            value=float(spilled),
            limit=None if limit is None else limit.value,
            line=None if limit is None else limit.line,
            base=None if spilled_before is None else float(spilled_before),
            required=limit is not None and limit.required,
        )


def repeats(policy: Policy, report: Report, backend: str) -> Iterator[Finding]:
    """How far repeats of a call lie apart: of calls with `deterministic=True` where the backend takes that, else of
    plain ones. A limit of 0 asks for the same bits."""
    of_head, of_base = (_worst_repeats(report, backend, revision) for revision in ("head", "base"))
    inputs, gated = {entry.input for entry in report.inputs}, policy.settings.inputs
    found = {case: worst for case, worst in of_head.items() if gated is None or case in gated or case not in inputs}
    own = policy.own(REPEATS)
    if not found and own is not None:
        yield unmeasured(REPEATS, own, backend, "whether calls repeat")
    for case, worst in found.items():
        limit = policy.limit(REPEATS, backend, case)
        if limit is None:
            continue
        spread, before = worst.spread or 0.0, of_base.get(case)
        asked = "with deterministic=True" if worst.deterministic_requested else "without deterministic=True"
        differ = (
            "have the same bits"
            if worst.bitwise
            else f"differ by up to {percent(spread)} in {tensor_name(worst.tensor)}"
        )
        yield Finding(
            REPEATS,
            backend,
            "pass" if spread <= limit.value and (worst.bitwise or limit.value > 0) else "fail",
            f"{backend}: {worst.repeats} calls on {case} {asked} {differ}, limit {percent(limit.value)}",
            case=case,
            value=spread,
            limit=limit.value,
            line=limit.line,
            base=before.spread if before else None,
            required=limit.required,
        )


def _worst_spills(report: Report, backend: str, revision: str) -> dict[str, Kernel]:
    """The kernel that spills most, by case, of those that say so."""
    worst: dict[str, Kernel] = {}
    for kernel in report.throughput.kernels if report.throughput else ():
        if (kernel.backend, kernel.revision) == (backend, revision) and kernel.spills is not None:
            known = worst.get(kernel.case)
            if known is None or kernel.spills > (known.spills or 0):
                worst[kernel.case] = kernel
    return worst


def _worst_repeats(report: Report, backend: str, revision: str) -> dict[str, Repeatability]:
    """The tensor whose repeats lie furthest apart, by case, of the calls that count."""
    repeated = [
        entry
        for entry in report.determinism or ()
        if (entry.backend, entry.revision) == (backend, revision) and entry.repeats
    ]
    asked = [entry for entry in repeated if entry.deterministic_requested]
    by_case: dict[str, list[Repeatability]] = {}
    for entry in asked or repeated:
        by_case.setdefault(entry.case, []).append(entry)
    return {case: _furthest(entries) for case, entries in by_case.items()}


def _furthest(entries: Iterable[Repeatability]) -> Repeatability:
    return max(entries, key=lambda entry: (not entry.bitwise, entry.spread or 0.0))
