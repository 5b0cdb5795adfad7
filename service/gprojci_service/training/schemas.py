"""What the endpoints of training runs take and give."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from gprojci_service.training.summary import ALARM, PARTED

TrainingName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""As the contract has it."""


def _spelled(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


Value = Annotated[float | str, BeforeValidator(_spelled)]
"""A number; spelled as in the contract where it is not finite."""


class SpreadOut(BaseModel):
    """A value over seeds: median, smallest, largest."""

    model_config = ConfigDict(from_attributes=True)

    middle: Value
    low: Value
    high: Value


class BackendOut(BaseModel):
    """What came of one backend; values are null where no run has them. Errors are fractions, times seconds."""

    model_config = ConfigDict(from_attributes=True)

    backend: str
    seeds: list[int]
    statuses: Annotated[dict[str, int], BeforeValidator(dict)]
    steps: SpreadOut
    final_loss: SpreadOut | None
    loss_difference: SpreadOut | None
    compared_at: SpreadOut | None
    largest_gradient_norm: SpreadOut | None
    late_gradient_norm: SpreadOut | None
    final_dq_error: SpreadOut | None
    step_seconds: SpreadOut | None
    fast_step_seconds: SpreadOut | None
    alarm_step: SpreadOut | None
    alarm_runs: int
    parted_step: SpreadOut | None
    parted_runs: int


class SummaryOut(BaseModel):
    """What came of a training; losses are compared with `reference`, an FP32 backend, where there is one."""

    name: str
    reference: str | None
    backends: list[BackendOut]


Limit = Annotated[float, Field(allow_inf_nan=False)]


class CheckTold(BaseModel):
    """A check whose findings the channels of a project are told of."""

    project: str = Field(description="Full name, `owner/name`.")
    backend: list[str] = Field([], max_length=100, description="Backends to check; left out: all but FP32's.")
    loss: Limit = Field(PARTED, description="Most nats that a loss may end above FP32's with the same seed.")
    dq_error: Limit = Field(ALARM, description="Largest error of dQ in any head in the end, a fraction.")


class CheckOut(BaseModel):
    """What is wrong with each backend, nothing where its list is empty; `told` are the channels that are told of it."""

    name: str
    wrong: dict[str, list[str]]
    told: list[str] = []


class RunOut(BaseModel):
    """A run, without its series."""

    backend: str
    seed: int
    status: str
    detail: str | None
    steps: int


class TrainingOut(BaseModel):
    """A training with its runs, without their series."""

    name: str
    hardware: str | None
    setup: dict[str, Any]
    begun_at: datetime
    sent_at: datetime
    sent_by: str
    runs: list[RunOut]


class TakenOut(TrainingOut):
    """What became of a report; `older` are runs of which a newer report is there, so that this one changed nothing."""

    older: list[str]
