"""Words the gate's stored evidence for people; judges nothing, the verdicts stand in the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gprojci_service.gate import accepted
from gprojci_service.models import Verdict
from gprojci_service.pages.formatting import DASH, fraction, memory, number, ratio, signed_percent, tensor
from gprojci_service.pages.schemas import FindingView

_LABELS = {
    "status": "Runs at all",
    "nonfinite": "No NaN or Inf",
    "inputs": "Gated input set measured",
    "kernel_time_increase": "Time over the base's",
    "kernel_overhead_ceiling": "Time over the anchor's",
    "step_overhead_ceiling": "Training step over the anchor's",
    "step_overhead_increase": "Training step over the base's",
    "peak_memory_increase": "Peak memory over the base's",
    "peak_memory_overhead_ceiling": "Peak memory over the anchor's",
    "spilled_registers_ceiling": "Spilled registers",
    "repeat_spread_ceiling": "Difference between repeats",
}

_KINDS = {
    "error_ceiling": "error",
    "error_ratio": "error",
    "worst_ceiling": "error_worst",
    "symmetry_ceiling": "symmetry",
}
_METRICS = {
    "kernel_time_increase": "forward_backward_ratio_anchor",
    "kernel_overhead_ceiling": "forward_backward_ratio_anchor",
    "step_overhead_increase": "step_ratio_anchor",
    "step_overhead_ceiling": "step_ratio_anchor",
    "peak_memory_increase": "peak_memory",
    "peak_memory_overhead_ceiling": "peak_memory",
}


def label(key: str) -> str:
    """A gate key in words: dq_error_ceiling → 'dQ error, median'."""
    if key in _LABELS:
        return _LABELS[key]
    name, _, kind = key.partition("_")
    words = {
        "error_ceiling": "error, median",
        "worst_ceiling": "error, worst slice",
        "error_ratio": "error over the base's",
        "symmetry_ceiling": "response to a key shift",
    }
    return f"{tensor(name)} {words[kind]}" if kind in words else key.replace("_", " ")


def is_time(key: str) -> bool:
    """Whether a key limits a time, given as an increase."""
    return key.startswith(("kernel_", "step_"))


def is_memory(key: str) -> bool:
    """Whether a key limits memory, given as an increase; its base is in bytes."""
    return key.startswith("peak_memory_")


def value_of(key: str, value: float | None) -> str:
    """What is held against a key's limit, in its unit."""
    if value is None:
        return DASH
    if key in ("nonfinite", "spilled_registers_ceiling"):
        return number(value)
    if is_time(key) or is_memory(key):
        return signed_percent(value)
    return ratio(value) if key.endswith("_ratio") else fraction(value)


def base_of(key: str, value: float | None) -> str:
    """What a finding has of its base."""
    if is_memory(key):
        return memory(value)
    return fraction(value) if key.endswith("_ratio") else value_of(key, value)


def _limit(key: str, value: float | None) -> str:
    """A limit as it was set: 1.05×, not 1.050×."""
    return f"{value:g}×" if value is not None and key.endswith("_ratio") else value_of(key, value)


def view(row: Mapping[str, Any]) -> FindingView:
    """One row of the evidence."""
    key = str(row["limit_key"])
    reading = []
    if row["worst"] is not None and not key.endswith("_worst_ceiling"):
        reading.append(f"worst slice {fraction(row['worst'])}")
    if row["base"] is not None:
        reading.append(f"{'anchor' if 'overhead' in key else 'base'} {base_of(key, row['base'])}")
    interval = ""
    if row["low"] is not None and row["high"] is not None:
        interval = f"{value_of(key, row['low'])} … {value_of(key, row['high'])}"
    return FindingView(
        verdict=row["verdict"],
        check=key,
        label=label(key),
        backend=row["backend"] or DASH,
        where=" · ".join(part for part in (row["case"], row["slice"]) if part) or DASH,
        value=value_of(key, row["value"]),
        limit=_limit(key, row["limit"]),
        interval=interval,
        text=", ".join(reading) or (row["message"] if row["value"] is None else ""),
        sentence=row["message"],
        informative=not row["required"],
        accepted=row.get("accepted") or "",  # evidence of before there were overrides has no such key
        line=row.get("line"),  # verdicts from before rules have none
    )


def views(verdict: Verdict | None) -> tuple[FindingView, ...]:
    """All evidence of a verdict, the deciding ones first."""
    return () if verdict is None else tuple(view(row) for row in verdict.evidence)


def reasons(verdict: Verdict | None, at_most: int = 3) -> tuple[FindingView, ...]:
    """Why a verdict is not a pass: its deciding findings, at most so many."""
    if verdict is None or verdict.verdict == "pass":
        return ()
    found = [item for item in views(verdict) if item.verdict == verdict.verdict and not item.informative]
    return tuple(found[:at_most])


def acceptable(rows: Iterable[FindingView]) -> tuple[str, ...]:
    """Findings that fail, decide, and may be accepted, as backend/key."""
    found = (row for row in rows if row.verdict == "fail" and not row.informative and row.check not in accepted.NEVER)
    return tuple(dict.fromkeys(f"{row.backend}/{row.check}" for row in found))


def limit_of_metric(policy: Mapping[str, Any] | None, metric: str) -> float | None:
    """The ceiling that a gate's policy sets on a series' metric, in the metric's unit; None for none.

    None also where a rule sets it: it is another one from case to case, and no one line is right.
    """
    if not policy:
        return None
    for rule in policy.get("rules", ()):
        policy = {key: limit for key, limit in policy.items() if key not in rule["limits"]}
    limit = next((limit for key, limit in policy.items() if metric_of_ceiling(key) == metric), None)
    if limit is None:
        return None
    return float(limit) + (1.0 if metric.endswith("_ratio_anchor") else 0.0)


def metric_of_ceiling(key: str) -> str | None:
    """The metric of series whose level a gate's key bounds: none of a base's, and of memory none at all, for its limit
    is over the anchor's."""
    return metric_of_limit(key) if key.endswith("_ceiling") and not is_memory(key) else None


def metric_of_limit(key: str) -> str | None:
    """The metric of series that a gate's key limits; None where no series follows it."""
    name, _, kind = key.partition("_")
    return f"{name}_{_KINDS[kind]}" if kind in _KINDS else _METRICS.get(key)


def policy_words(verdict: Verdict | None) -> str:
    """Where the limits come from."""
    if verdict is None or "read_from" not in verdict.policy:
        return ""
    if verdict.policy["read_from"] == "base":
        return "limits read from the base commit's gprojci.toml: a change cannot loosen its own gate"
    return "the base has no gprojci.toml yet: limits read from the head's"
