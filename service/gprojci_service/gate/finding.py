"""What a decision is made of: one limit applied to one value, and the verdict over all of them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gprojci_service.gate.policy import Limit

VerdictWord = Literal["pass", "fail", "neutral", "error"]
SEVERITY: tuple[VerdictWord, ...] = ("fail", "error", "neutral", "pass")


@dataclass(frozen=True)
class Finding:
    """One limit applied to one measured value."""

    limit_key: str
    """Key of the gate in the manifest, or `status`, `inputs` and `nonfinite`, which always hold."""
    backend: str
    verdict: VerdictWord
    message: str
    """All of this in one sentence."""
    case: str | None = None
    """Input set, shape × mask × dtype, or model."""
    slice: str | None = None
    """The worst slice (layer, batch, head) of an accuracy finding."""
    value: float | None = None
    """What is held against the limit: a fraction, a ratio for the `_ratio` limits, a count of registers."""
    limit: float | None = None
    worst: float | None = None
    """Value of the worst slice, a fraction."""
    base: float | None = None
    """The base's value, where it has one; of memory the bytes of what it is held against."""
    low: float | None = None
    high: float | None = None
    """Interval of the value, where it has one."""
    line: int | None = None
    """Line of the manifest that sets the limit."""
    required: bool = True
    """Whether it takes part in the verdict."""
    accepted: str | None = None
    """By whom it was accepted, and why; it then takes no part."""

    @property
    def excess(self) -> float:
        """How far the value is beyond its limit, for sorting: the worst first."""
        if self.value is None or self.limit is None or not math.isfinite(self.value):
            return math.inf
        ceiling = self.limit_key.endswith("_ceiling") and self.limit > 0
        return self.value / self.limit if ceiling else self.value - self.limit

    def to_json(self) -> dict[str, Any]:
        """Plain data for the `evidence` of a verdict; a value that is not finite becomes null, the message says it."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }


def unmeasured(key: str, limit: Limit, backend: str, what: str, *, decides: bool = True) -> Finding:
    """A limit on something that the report does not have cannot be told, and is not passed over in silence."""
    return Finding(
        key,
        backend,
        "neutral",
        f"{backend}: {what} was not measured",
        limit=limit.value,
        line=limit.line,
        required=decides and limit.required,
    )


@dataclass(frozen=True)
class Decision:
    """A verdict with its findings, the deciding ones first."""

    verdict: VerdictWord
    summary: str
    findings: tuple[Finding, ...]
