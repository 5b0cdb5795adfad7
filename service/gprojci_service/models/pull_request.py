"""Table `pull_request`: a pull request as its last webhook described it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class PullRequest(Keyed, Base):
    """A pull request of a project."""

    __tablename__ = "pull_request"
    __table_args__ = (UniqueConstraint("project_id", "number"),)

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    number: Mapped[int]
    title: Mapped[str]
    author_login: Mapped[str | None]
    state: Mapped[str] = mapped_column(default="open")
    """open, closed or merged."""
    draft: Mapped[bool] = mapped_column(default=False)
    from_fork: Mapped[bool] = mapped_column(default=False)
    head_sha: Mapped[str]
    head_ref: Mapped[str]
    base_sha: Mapped[str]
    base_ref: Mapped[str]
    html_url: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)
