"""What the regression endpoints take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StateChange(BaseModel):
    """What somebody decided about a regression."""

    state: Literal["acknowledged", "ignored", "fixed", "reopened"]
    reason: str | None = Field(None, max_length=2000, description="Needed where it is to be ignored.")
    commit: str | None = Field(
        None, pattern=r"^[0-9a-fA-F]{4,40}$", description="SHA or its beginning; needed where it is fixed."
    )


class Comment(BaseModel):
    """What somebody has to say."""

    text: str = Field(max_length=10_000)


class Owner(BaseModel):
    """Who looks after a regression; null is nobody."""

    owner: str | None = Field(max_length=200)


class EventOut(BaseModel):
    """A line of a regression's history."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    kind: str
    before: str | None
    after: str | None
    text: str | None
    author: str
    created_at: datetime


class SeriesOut(BaseModel):
    """One series that a regression shows in; levels are in its unit, `noise` and `change` are fractions."""

    series_id: int
    backend: str
    case: str
    metric: str
    hardware: str
    unit: str
    before: float | None
    after: float
    change: float | None
    noise: float | None
    limit: float | None
    recovered_by_sha: str | None


class RegressionOut(BaseModel):
    """A regression with the series it shows in."""

    id: int
    project: str
    state: str
    summary: str
    last_good_sha: str | None
    first_bad_sha: str
    job_id: int | None
    fixed_by_sha: str | None
    owner: str | None
    reason: str | None
    series: list[SeriesOut]
    created_at: datetime
    updated_at: datetime


class RegressionDetail(RegressionOut):
    """A regression with its history."""

    events: list[EventOut]
