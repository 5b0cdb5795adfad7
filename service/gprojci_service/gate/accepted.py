"""Applies overrides to a decision: a broken limit that somebody accepted is shown and no longer decides.

NaN and Inf, and backends without a result, cannot be accepted: nothing was measured that a person could weigh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gprojci_service.gate.decision import SUMMARY_LIMIT, whole
from gprojci_service.gate.finding import Decision, Finding
from gprojci_service.models import Override

NEVER = ("status", "nonfinite")
"""Keys of findings that cannot be accepted."""


def can_be_accepted(finding: Finding) -> bool:
    """Whether a finding fails, decides, and is about a limit that a person may weigh."""
    return finding.verdict == "fail" and finding.required and finding.limit_key not in NEVER


def apply(made: Decision, overrides: Sequence[Override]) -> Decision:
    """The decision with its accepted findings marked and left out; as it was where no override is about any of them."""
    findings = [_accepted(finding, overrides) for finding in made.findings]
    if all(finding.accepted is None for finding in findings):
        return made
    decided, words = whole(findings), _words([finding for finding in findings if finding.accepted is not None])
    if not any(finding.required for finding in findings):
        return Decision("pass", words[:SUMMARY_LIMIT], decided.findings)
    room = max(SUMMARY_LIMIT - len(words) - 2, SUMMARY_LIMIT // 2)
    left = decided.summary if len(decided.summary) <= room else decided.summary[: room - 1] + "…"
    return Decision(decided.verdict, f"{left}; {words}"[:SUMMARY_LIMIT], decided.findings)


def _accepted(finding: Finding, overrides: Iterable[Override]) -> Finding:
    if can_be_accepted(finding):
        for override in overrides:
            if override.limit_key == finding.limit_key and override.backend in ("", finding.backend):
                return replace(finding, required=False, accepted=f"accepted by {override.author}: {override.reason}")
    return finding


def _words(findings: Sequence[Finding]) -> str:
    """`dq_error_ceiling accepted by ada: known`; of several the first, and how many more."""
    first, *others = dict.fromkeys(f"{finding.limit_key} {finding.accepted}" for finding in findings)
    return first + (f" (+{len(others)} more)" if others else "")
