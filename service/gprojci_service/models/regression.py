"""Table `regression`: a worsening in a series, with a triage state."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

TRIAGE_STATES = ("new", "acknowledged", "ignored", "fixed")


class Regression(Keyed, Base):
    """A value that broke its limit at a commit; the same step is recorded once."""

    __tablename__ = "regression"
    __table_args__ = (
        UniqueConstraint("series_id", "commit_id"),
        CheckConstraint(f"state IN {TRIAGE_STATES}", name="state"),
    )

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), index=True)
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    commit_id: Mapped[int] = mapped_column(ForeignKey("commit.id"))
    """The first commit at which it was seen."""
    verdict_id: Mapped[int] = mapped_column(ForeignKey("verdict.id"))
    value: Mapped[float]
    limit: Mapped[float]
    state: Mapped[str] = mapped_column(default="new", index=True)
    reason: Mapped[str | None]
    """Why it was acknowledged or ignored, by whoever did it."""
    fixed_by_sha: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)
