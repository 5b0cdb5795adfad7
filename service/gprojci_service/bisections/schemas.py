"""What the bisection endpoints take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from gprojci_service.jobs.schemas import MOST_COMMITS, SHA_PATTERN

Sha = Annotated[str, Field(pattern=SHA_PATTERN)]


class BisectionCreate(BaseModel):
    """A search for the commit that made a metric worse."""

    project: str = Field(description="Full name of a registered project.")
    good: str = Field(pattern=SHA_PATTERN, description="A commit that is good: what all others are measured against.")
    commits: list[Sha] = Field(
        min_length=1,
        max_length=MOST_COMMITS,
        description="`git rev-list --first-parent --reverse GOOD..BAD`: oldest first, the bad commit last.",
    )
    metric: str = Field(description="A metric of series in which more is worse, such as `dq_error`.")
    backend: str | None = Field(None, max_length=200, description="Default: that in which the bad commit is worst.")
    case: str | None = Field(None, max_length=200, description="Input set, shape or model; default: as `backend`.")
    hardware: str | None = Field(None, description="Needed where the project has several classes.")
    threshold: float | None = Field(
        None, gt=1, le=1e6, description="Ratio to the good commit from which on one is bad; default: half-way."
    )
    max_effort: Literal[1, 2, 4, 8, 16] = Field(
        8, description="Largest multiple of the manifest's pairs that an unsure commit is measured with."
    )


class FindingOut(BaseModel):
    """What one measurement said of one commit."""

    sha: str
    position: int
    word: Literal["good", "bad", "unsure", "skipped"]
    ratio: float | None
    low: float | None
    high: float | None
    effort: int
    job_id: int | None
    job_url: str | None
    reused: bool
    reason: str


class BisectionOut(BaseModel):
    """A bisection and all that it knows."""

    id: int
    project: str
    hardware: str
    metric: str
    backend: str | None
    case: str | None
    threshold: float | None
    state: str
    detail: str | None
    good: str
    bad: str
    commits: int = Field(description="How many are searched, the good one not counted.")
    remaining: list[str] = Field(description="Commits of which one is the first bad one, oldest first; at most 100.")
    remaining_count: int
    first_bad: str | None = Field(description="Once it is known to be a single commit.")
    findings: list[FindingOut]
    job_id: int | None = Field(description="The job that it waits for.")
    created_by: str
    created_at: datetime
    finished_at: datetime | None
