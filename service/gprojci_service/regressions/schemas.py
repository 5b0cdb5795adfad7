"""What the regression endpoints take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Triage(BaseModel):
    """What somebody decided about a regression."""

    state: Literal["new", "acknowledged", "ignored", "fixed"]
    reason: str | None = Field(None, max_length=2000)


class RegressionOut(BaseModel):
    """A regression."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    project_id: int
    series_id: int
    commit_id: int
    verdict_id: int
    value: float
    limit: float
    state: str
    reason: str | None
    fixed_by_sha: str | None
    created_at: datetime
    updated_at: datetime
