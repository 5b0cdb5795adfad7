"""Table `bisection`: the search for the first commit at which a metric is worse."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

BISECTION_STATES = ("running", "found", "not_worse", "failed", "cancelled")


class Bisection(Keyed, Base):
    """One search on one hardware class; it goes on whenever the job that it waits for has ended."""

    __tablename__ = "bisection"
    __table_args__ = (CheckConstraint(f"state IN {BISECTION_STATES}", name="state"),)

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), index=True)
    hardware: Mapped[str]
    metric: Mapped[str]
    """A metric of series: dq_error, forward_backward_seconds, …"""
    backend: Mapped[str | None]
    """None until the bad commit was measured: then that in which it is worst."""
    case: Mapped[str | None]
    """As `backend`."""
    commits: Mapped[list[Any]]
    """Full SHAs along first parents: the good commit first, the bad one last."""
    threshold: Mapped[float | None]
    """Ratio to the good commit from which on a commit is bad; None until it is known."""
    max_effort: Mapped[int]
    """Largest multiple of the manifest's pairs that an unsure commit is measured with."""
    findings: Mapped[list[Any]] = mapped_column(default=list)
    """What is known of each measured commit, in the order of measuring; see `bisections.search.Finding`."""
    job_id: Mapped[int | None] = mapped_column(ForeignKey("job.id"), index=True)
    """The job that it waits for."""
    state: Mapped[str] = mapped_column(default="running", index=True)
    detail: Mapped[str | None]
    """What was found, or why nothing, in a sentence."""
    created_by: Mapped[str]
    """Name of the token."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    finished_at: Mapped[datetime | None]
