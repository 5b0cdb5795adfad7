"""Table `job`: measure a head commit against a base commit on one hardware class."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

OPEN_STATES = ("draft", "awaiting_approval", "queued", "running", "deciding")
JOB_STATES = (*OPEN_STATES, "finished", "cancelled")
FREED_KEY = "/cancelled/"
OBSERVING_KINDS = ("bisect", "backfill", "schedule")
"""Kinds of jobs that only look at commits, for searches, for the past and at set times: GitHub is told nothing of them,
and no merge waits for them."""
PRIORITY = {"merge_group": -1, "bisect": 1, "schedule": 1, "backfill": 2}
"""Of the kinds; a lower number is claimed sooner, the others have 0. A merge group holds up everybody's merges."""
PRIORITIES = sorted({0, *PRIORITY.values()})


class Job(Keyed, Base):
    """A job; the row is the truth about it, a Celery message only a hint that it exists."""

    __tablename__ = "job"
    __table_args__ = (
        CheckConstraint(f"state IN {JOB_STATES}", name="state"),
        Index("ix_job_claim", "hardware", "state", "priority", "project_id", "id"),
        Index("ix_job_turn", "hardware", "project_id", "started_at"),
        Index("ix_job_project_head", "project_id", "head_sha"),
        Index("ix_job_project_merge_base", "project_id", "merge_base_sha"),
        Index("ix_job_project_ref", "project_id", "ref", "id"),
    )

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    kind: Mapped[str]
    """push, pull_request, merge_group, manual; baseline, which compares with another base and decides no merge; bisect,
    backfill and schedule, which only look at commits."""
    dedup_key: Mapped[str] = mapped_column(unique=True)
    """What makes a second webhook about the same thing the same job. A job that an event cancelled gives its key up
    (`FREED_KEY` and its number follow), so that the same commits can come back; one cancelled by hand keeps it."""
    head_sha: Mapped[str]
    base_sha: Mapped[str | None]
    """As the trigger named it; the worker resolves `merge_base_sha` from it."""
    merge_base_sha: Mapped[str | None]
    """The commit the head is measured against, once a worker has resolved it."""
    ref: Mapped[str | None]
    """Branch the head is on, without `refs/heads/`."""
    pull_request_id: Mapped[int | None] = mapped_column(ForeignKey("pull_request.id"), index=True)
    hardware: Mapped[str]
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    """Which is claimed first: the lowest, and of the same the oldest. History must not keep fresh pushes waiting."""
    effort: Mapped[int] = mapped_column(default=1, server_default="1")
    """How many times the manifest's timed pairs are measured."""
    state: Mapped[str] = mapped_column(default="queued", index=True)
    failure_kind: Mapped[str | None]
    """Of a job that ended without a report: build_error, timeout, lost_worker, …"""
    detail: Mapped[str | None]
    """Why it was cancelled or failed, in words."""
    approved_at: Mapped[datetime | None]
    """When a maintainer let this commit be built; of trusted pull requests it is not asked."""
    approved_by: Mapped[str | None]
    """GitHub login, or name of the token."""
    superseded_by_id: Mapped[int | None] = mapped_column(ForeignKey("job.id"))
    retry_of_id: Mapped[int | None] = mapped_column(ForeignKey("job.id"))
    created_at: Mapped[datetime] = mapped_column(default=now, index=True)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
