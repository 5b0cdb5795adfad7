"""Table `override`: a broken limit that somebody accepted for one commit, by name and with a reason."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

OVERRIDE_SOURCES = ("comment", "api", "page")


class Override(Keyed, Base):
    """One acceptance. It is about this one commit, so the next push has none, and the row is never changed."""

    __tablename__ = "override"
    __table_args__ = (
        UniqueConstraint("project_id", "head_sha", "limit_key", "backend"),
        CheckConstraint(f"source IN {OVERRIDE_SOURCES}", name="source"),
    )

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    head_sha: Mapped[str]
    limit_key: Mapped[str]
    """Key of the gate, as findings have it."""
    backend: Mapped[str] = mapped_column(default="")
    """Name of the one backend it is about; empty for every backend."""
    author: Mapped[str]
    """GitHub login, or name of the token."""
    reason: Mapped[str]
    source: Mapped[str]
    """comment, api or page."""
    source_url: Mapped[str | None]
    """Of the comment."""
    created_at: Mapped[datetime] = mapped_column(default=now)
