"""Table `build`: what a worker built for an attempt, or took from its cache."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Build(Keyed, Base):
    """One revision's build within an attempt."""

    __tablename__ = "build"
    __table_args__ = (UniqueConstraint("attempt_id", "revision"),)

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id"))
    revision: Mapped[str]
    """head or base."""
    key: Mapped[str] = mapped_column(index=True)
    """Same key, same result: tree of the build path, lock, Python, torch, CUDA and architecture."""
    reused: Mapped[bool]
    status: Mapped[str]
    """ok or build_error."""
    seconds: Mapped[float]
    log_tail: Mapped[str] = mapped_column(default="")
    created_at: Mapped[datetime] = mapped_column(default=now)
