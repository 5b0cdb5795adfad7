"""Table `pull_request_comment`: a comment with commands for us, and what became of each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

COMMENT_STATES = ("pending", "done", "refused", "failed")


class PullRequestComment(Keyed, Base):
    """One comment; GitHub's number makes a second delivery of it the same comment."""

    __tablename__ = "pull_request_comment"
    __table_args__ = (
        CheckConstraint(f"state IN {COMMENT_STATES}", name="state"),
        Index("ix_pull_request_comment_thread", "project_id", "number"),
    )

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    number: Mapped[int]
    """Of the pull request."""
    github_id: Mapped[int] = mapped_column(BigInteger, unique=True)
    author: Mapped[str]
    """GitHub login."""
    html_url: Mapped[str | None]
    lines: Mapped[list[Any]]
    """The lines that are commands, in order."""
    state: Mapped[str] = mapped_column(default="pending", index=True)
    """pending; done; refused: its author may not; failed: GitHub could not be asked whether he may."""
    results: Mapped[list[Any]] = mapped_column(default=list)
    """`[{"line", "ok", "text"}]`, one for each line."""
    detail: Mapped[str | None]
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime | None]
    """Not to be carried out before; None is at once."""
    commented_at: Mapped[datetime]
    """By GitHub's clock."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    done_at: Mapped[datetime | None]
