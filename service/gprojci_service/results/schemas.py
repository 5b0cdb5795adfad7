"""What an attempt returns, and what the reading API gives of it."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gprojci_service.identifier import RowId
from gprojci_service.workers.schemas import Step

FAILURE_KINDS = {
    "build_error": "The commit could not be built, or its manifest is wrong.",
    "unsupported": "No backend of the manifest can run on this hardware.",
    "wrong_result": "A backend returned something of the wrong shape or type, or NaN or Inf.",
    "runtime_error": "The measuring process ended with an error.",
    "timeout": "The attempt took longer than its hard limit.",
    "out_of_memory": "The measuring process ran out of memory.",
    "lost_worker": "The worker stopped answering on every try.",
    "checkout_error": "The commits could not be fetched on every try.",
}


class BuildOut(BaseModel):
    """One revision's build."""

    model_config = ConfigDict(from_attributes=True)

    revision: Literal["head", "base"]
    key: str = Field(max_length=100)
    reused: bool
    seconds: float = Field(ge=0)
    status: Literal["ok", "build_error"]
    log_tail: str = Field("", max_length=20_000)


class Manifests(BaseModel):
    """Text of `gprojci.toml` at both commits."""

    head: str | None = Field(None, max_length=200_000)
    base: str | None = Field(None, max_length=200_000)


class AttemptReport(BaseModel):
    """The terminal message of an attempt."""

    fencing_token: int
    status: Literal[
        "measured",
        "build_error",
        "unsupported",
        "wrong_result",
        "runtime_error",
        "timeout",
        "out_of_memory",
        "lost_worker",
        "checkout_error",
    ]
    detail: str = Field("", max_length=20_000)
    steps: list[Step] = Field([], max_length=20)
    builds: list[BuildOut] = Field([], max_length=2)
    manifests: Manifests = Manifests()
    report: dict[str, Any] | None = None
    fingerprint: str | None = Field(None, max_length=64, description="Of what was measured, for those who come later.")
    same_as: RowId | None = Field(None, description="The stored report that is taken over, instead of `report`.")


class Received(BaseModel):
    """Acknowledges a report; `accepted` is False for one that came too late to count."""

    accepted: bool
    reason: str


class SeriesOut(BaseModel):
    """A curve over commits."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    backend: str
    case: str
    metric: str
    unit: str
    hardware: str
    ruler_revision: str


class ChangeOut(BaseModel):
    """One metric at both sides; `change` is head ÷ base."""

    model_config = ConfigDict(from_attributes=True)

    verdict: Literal["worse", "better", "same", "unclear"]
    metric: str
    unit: str
    backend: str
    case: str
    base: float | None
    head: float | None
    change: float | None = Field(description="None where it is not finite.")
    low: float | None = Field(description="Interval of the change, where head and base were timed in one session.")
    high: float | None

    @field_validator("base", "head", "change", mode="before")
    @classmethod
    def _finite(cls, value: float) -> float | None:
        return value if math.isfinite(value) else None


class ComparisonOut(BaseModel):
    """Two commits beside each other, what matters most first."""

    base: str
    head: str
    same_session: bool
    warning: str
    worse: int
    better: int
    changes: list[ChangeOut]


class SampleOut(BaseModel):
    """One value at one commit."""

    sha: str
    revision: str
    value: float
    low: float | None
    high: float | None
    count: int
    measured_at: datetime
