"""Table `verdict`: the gate's decision on a job, with its evidence."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column, validates

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
    failed: Mapped[list[Any]] = mapped_column(default=list)
    """Backend, case and limit key of the findings that failed: evidence is long, and charts mark many verdicts."""
    policy: Mapped[dict[str, Any]]
    """The limits applied and which commit they were read from."""
    decided_at: Mapped[datetime] = mapped_column(default=now)

    @validates("evidence")
    def _set_failed(self, _key: str, evidence: list[dict[str, Any]]) -> list[dict[str, Any]]:
        failed = (row for row in evidence if row.get("verdict") == "fail")
        self.failed = [[row.get("backend") or "", row.get("case") or "", row["limit_key"]] for row in failed]
        return evidence
