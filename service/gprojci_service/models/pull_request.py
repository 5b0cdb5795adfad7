"""Table `pull_request`: a pull request as its last webhook described it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

FIRST_TIME = ("FIRST_TIMER", "FIRST_TIME_CONTRIBUTOR", "NONE")


class PullRequest(Keyed, Base):
    """A pull request of a project."""

    __tablename__ = "pull_request"
    __table_args__ = (UniqueConstraint("project_id", "number"),)

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    number: Mapped[int]
    title: Mapped[str]
    author_login: Mapped[str | None]
    author_association: Mapped[str | None]
    """GitHub's word for what the author is to the repository: MEMBER, CONTRIBUTOR, FIRST_TIME_CONTRIBUTOR, NONE, …"""
    state: Mapped[str] = mapped_column(default="open")
    """open, closed or merged."""
    draft: Mapped[bool] = mapped_column(default=False)
    from_fork: Mapped[bool] = mapped_column(default=False)
    head_sha: Mapped[str]
    head_ref: Mapped[str]
    base_sha: Mapped[str]
    base_ref: Mapped[str]
    html_url: Mapped[str | None]
    github_updated_at: Mapped[datetime | None]
    """When GitHub last changed it, as the newest webhook said: what is older came late."""
    previous_head_sha: Mapped[str | None]
    """The head before the last push, which tells the order of two pushes within a second."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now, onupdate=now)

    @property
    def untrusted(self) -> str:
        """Why its code is built only once somebody has approved the commit; empty where it needs no approval."""
        if self.from_fork:
            return "the code comes from a fork"
        if self.author_association in FIRST_TIME:
            return f"{self.author_login or 'its author'} has contributed nothing here yet"
        return ""
