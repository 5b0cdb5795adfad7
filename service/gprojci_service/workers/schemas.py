"""The worker API: what a measuring host sends and is answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gprojci_service.identifier import RowId

NAME = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}$")

BOOT_ID = Field(None, min_length=8, max_length=64, description="Which start of the worker asks; as in its hello.")


class Hello(BaseModel):
    """A worker process has started."""

    name: str = NAME
    hardware: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    device: Literal["cpu", "cuda"]
    device_name: str = Field(max_length=200)
    boot_id: str = Field(min_length=8, max_length=64)
    environment: dict[str, Any] = {}


class Welcome(BaseModel):
    """Answer to `Hello`."""

    worker_id: int
    lease_seconds: float
    heartbeat_seconds: float
    draining: bool = Field(description="Whether it gets no work until it is resumed.")


class Alive(BaseModel):
    """A worker is there and has nothing to do."""

    worker: str = NAME
    boot_id: str | None = BOOT_ID


class AliveAnswer(BaseModel):
    """Whether an idle worker should listen for work."""

    draining: bool


class Claim(BaseModel):
    """A worker asks for work; `job_id` is what a message told it of."""

    worker: str = NAME
    boot_id: str | None = BOOT_ID
    claim_id: str = Field(min_length=8, max_length=64)
    job_id: RowId | None = None


class ClaimedAttempt(BaseModel):
    """The try that the worker now holds."""

    id: int
    number: int
    fencing_token: int
    lease_seconds: float
    heartbeat_seconds: float
    hard_limit_seconds: float


class ClaimedPullRequest(BaseModel):
    """The pull request that a job is about."""

    number: int
    base_ref: str
    head_ref: str


class ClaimedJob(BaseModel):
    """What is to be measured."""

    id: int
    kind: str
    head_sha: str
    base_sha: str | None
    pull_request: ClaimedPullRequest | None
    effort: int = Field(1, description="How many times the manifest's timed pairs are measured.")


class ClaimedProject(BaseModel):
    """Where it is fetched from."""

    name: str
    clone_url: str
    private: bool
    clone_token: str | None = Field(None, description="Of private repositories: what they are read with, for an hour.")


class Claimed(BaseModel):
    """Answer to `Claim`."""

    attempt: ClaimedAttempt
    job: ClaimedJob
    project: ClaimedProject


class Step(BaseModel):
    """One of the worker's steps."""

    name: str = Field(max_length=40)
    started_at: datetime
    seconds: float | None = None
    status: Literal["running", "ok", "failed", "skipped"]


class ResolvedCommit(BaseModel):
    """What git says of a commit."""

    sha: str = Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")
    message: str
    author_name: str
    author_email: str
    authored_at: datetime
    parents: list[str]


class Resolved(BaseModel):
    """The commits that will be measured: the head, and its merge base or parent."""

    head: ResolvedCommit
    base: ResolvedCommit | None = None


class Heartbeat(BaseModel):
    """The attempt is alive and in this step."""

    fencing_token: int
    step: str | None = Field(None, max_length=40)
    steps: list[Step] = Field([], max_length=20)
    resolved: Resolved | None = None


class HeartbeatAnswer(BaseModel):
    """Whether to go on."""

    cancel: bool
    lease_seconds: float


class Return(BaseModel):
    """The worker stops before the attempt has ended."""

    fencing_token: int
    reason: str = Field(max_length=500)


class Measurement(BaseModel):
    """What is about to be measured, as one hash of all that it depends on."""

    fencing_token: int
    fingerprint: str = Field(pattern=r"^[0-9a-f]{64}$")


class KnownMeasurement(BaseModel):
    """The report of the same measurement, where there is one that may be taken over."""

    report_id: int | None
    job_id: int | None


class Log(BaseModel):
    """Some lines of the attempt's log, numbered from 0 so that a repeated one is stored once."""

    fencing_token: int
    sequence: int = Field(ge=0)
    text: str = Field(max_length=1_000_000)


class WorkerOut(BaseModel):
    """A worker."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    name: str
    hardware: str
    device: str
    device_name: str
    environment: dict[str, Any]
    job_id: int | None = Field(None, description="The job that it measures now.")
    draining_at: datetime | None
    last_seen_at: datetime
    created_at: datetime
