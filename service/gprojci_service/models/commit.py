"""Table `commit`: a commit of a project that a job names."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Commit(Keyed, Base):
    """A commit; message, author and parents come from the webhook first and from git once a worker fetched it."""

    __tablename__ = "commit"
    __table_args__ = (UniqueConstraint("project_id", "sha"),)

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    sha: Mapped[str]
    message: Mapped[str | None]
    author_name: Mapped[str | None]
    author_email: Mapped[str | None]
    authored_at: Mapped[datetime | None]
    parents: Mapped[list[Any] | None]
    """Full SHAs of the parents, first parent first."""
    created_at: Mapped[datetime] = mapped_column(default=now)
