"""What the job endpoints take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SHA_PATTERN = r"^[0-9a-f]{40}([0-9a-f]{24})?$"
LOG_CURSOR = "GProjCI-Log-Cursor"
"""Header that says how far a log goes."""
MOST_COMMITS = 20_000
"""Longest range of commits that one request may name."""


class JobCreate(BaseModel):
    """A measurement asked for by hand."""

    project: str = Field(description="Full name of a registered project.")
    head_sha: str = Field(pattern=SHA_PATTERN)
    base_sha: str | None = Field(None, pattern=SHA_PATTERN, description="Default: the head's first parent.")


class Backfill(BaseModel):
    """Commits of the past that are to be measured."""

    project: str = Field(description="Full name of a registered project.")
    commits: list[Annotated[str, Field(pattern=SHA_PATTERN)]] = Field(
        min_length=1,
        max_length=MOST_COMMITS,
        description="Oldest first: `git rev-list --first-parent --reverse OLD..NEW`.",
    )
    every: int = Field(1, ge=1, le=MOST_COMMITS, description="Take every Nth, counted back from the newest.")


class BackfillOut(BaseModel):
    """What a backfill asked for."""

    model_config = ConfigDict(from_attributes=True)

    selected: list[str]
    created: list[int] = Field(description="Numbers of the new jobs.")
    measured: list[str] = Field(description="Selected commits that were measured before, or are about to be.")


class JobCancel(BaseModel):
    """Why a job is cancelled."""

    reason: str = Field("cancelled by hand", max_length=500)


class JobApprove(BaseModel):
    """Which commit is approved: the full SHA, again."""

    head_sha: str = Field(pattern=SHA_PATTERN)


class JobOut(BaseModel):
    """A job."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    project_id: int
    kind: str
    head_sha: str
    base_sha: str | None
    merge_base_sha: str | None
    ref: str | None
    hardware: str
    priority: int
    effort: int
    state: str
    failure_kind: str | None
    detail: str | None
    approved_at: datetime | None
    approved_by: str | None
    superseded_by_id: int | None
    retry_of_id: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class AttemptOut(BaseModel):
    """A try of a job."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    number: int
    state: str
    step: str | None
    steps: list[dict[str, object]]
    failure_kind: str | None
    detail: str | None
    heartbeat_at: datetime
    started_at: datetime
    finished_at: datetime | None


class VerdictOut(BaseModel):
    """The gate's decision."""

    model_config = ConfigDict(from_attributes=True)

    verdict: str
    summary: str
    evidence: list[dict[str, object]]
    policy: dict[str, object]
    decided_at: datetime


class UsageOut(BaseModel):
    """What a job took of its workers."""

    model_config = ConfigDict(from_attributes=True)

    seconds: float = Field(description="From the claims to the ends of its attempts.")
    measuring_seconds: float = Field(
        description="Of these while backends computed or were timed; the step `run` where its report does not tell."
    )
    measuring_share: float | None
    cost: float | None = Field(description="None where GPROJCI_HOUR_PRICES has no price of the hardware class.")
    currency: str


class JobDetail(JobOut):
    """A job with its attempts and verdict."""

    project: str
    usage: UsageOut
    taken_from_job: int | None = Field(None, description="The job whose measurement was taken over.")
    attempts: list[AttemptOut]
    verdict: VerdictOut | None
