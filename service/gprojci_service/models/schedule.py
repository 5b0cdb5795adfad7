"""Table `schedule`: when the head of a project's default branch is measured anew."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Schedule(Keyed, Base):
    """One timetable per project."""

    __tablename__ = "schedule"

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), unique=True)
    cron: Mapped[str]
    """Minute, hour, day of the month, month, day of the week, as cron has them; in UTC."""
    next_run_at: Mapped[datetime] = mapped_column(index=True)
    last_run_at: Mapped[datetime | None]
    last_outcome: Mapped[str | None]
    """What became of the last run, in words."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)
