"""Table `verdict`: the gate's decision on a job, with its evidence."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

VERDICTS = ("pass", "fail", "neutral", "error")


class Verdict(Keyed, Base):
    """One decision; everything needed to explain it stands in `evidence` and `policy`."""

    __tablename__ = "verdict"
    __table_args__ = (
        CheckConstraint(f"verdict IN {VERDICTS}", name="verdict"),
        Index("ix_verdict_verdict_job", "verdict", "job_id"),
        Index("ix_verdict_project_decided", "project_id", "decided_at"),
    )

    job_id: Mapped[int] = mapped_column(ForeignKey("job.id"), unique=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    head_sha: Mapped[str] = mapped_column(index=True)
    verdict: Mapped[str]
    summary: Mapped[str]
    """One sentence for a commit status: at most 140 characters."""
    evidence: Mapped[list[Any]]
    """Rows of `gate.decision.Finding`, the deciding ones first."""
    policy: Mapped[dict[str, Any]]
    """The limits applied and which commit they were read from."""
    decided_at: Mapped[datetime] = mapped_column(default=now)
