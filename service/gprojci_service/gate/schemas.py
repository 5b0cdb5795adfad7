"""What the endpoints of verdicts and overrides take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gprojci_service.jobs.schemas import SHA_PATTERN, VerdictOut

GateWord = Literal["pass", "fail", "neutral", "error", "pending"]


class GateJob(BaseModel):
    """The newest gating job of a commit on one hardware class."""

    id: int
    hardware: str
    state: str
    word: str
    summary: str


class GateOut(BaseModel):
    """Where a commit stands."""

    project: str
    head_sha: str
    word: GateWord = Field(description="fail before pending before error before neutral before pass.")
    jobs: list[GateJob]


class VerdictListed(VerdictOut):
    """A verdict in a list."""

    job_id: int
    project_id: int
    head_sha: str


class OverrideCreate(BaseModel):
    """A broken limit to be accepted for one commit."""

    project: str = Field(description="Full name of a registered project.")
    head_sha: str = Field(pattern=SHA_PATTERN)
    limit_key: str = Field(min_length=1, max_length=100, description="Key of the gate that fails.")
    backend: str = Field("", max_length=100, description="The one backend it is about; all where left out.")
    reason: str = Field(min_length=1, max_length=500)


class OverrideOut(BaseModel):
    """What somebody accepted."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    project_id: int
    head_sha: str
    limit_key: str
    backend: str
    author: str
    reason: str
    source: str
    source_url: str | None
    created_at: datetime
