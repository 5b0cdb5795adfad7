"""Table `regression`: something that made the project's default branch worse at one commit, and what became of it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

REGRESSION_STATES = ("new", "acknowledged", "ignored", "fixed", "reopened")
OPEN_REGRESSION_STATES = ("new", "acknowledged", "reopened")


class Regression(Keyed, Base):
    """One cause: every series that became worse at about the same commit is a `RegressionSeries` of it."""

    __tablename__ = "regression"
    __table_args__ = (CheckConstraint(f"state IN {REGRESSION_STATES}", name="state"),)

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), index=True)
    last_good_id: Mapped[int | None] = mapped_column(ForeignKey("commit.id"))
    """Newest measured commit before it; the cause is one of the commits after this up to the first bad one."""
    first_bad_id: Mapped[int] = mapped_column(ForeignKey("commit.id"))
    """Oldest measured commit that shows it."""
    job_id: Mapped[int | None] = mapped_column(ForeignKey("job.id"))
    """The job that measured the first bad commit."""
    state: Mapped[str] = mapped_column(default="new", index=True)
    reason: Mapped[str | None]
    """Why somebody acknowledged, ignored or closed it."""
    owner: Mapped[str | None]
    """Who looks after it, a name."""
    fixed_by_sha: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)
