"""Table `pull_request_comment`: a comment with commands for us, and what became of each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Retried

COMMENT_STATES = ("pending", "done", "refused", "failed")


class PullRequestComment(Retried, Base):
    """One comment; GitHub's number makes a second delivery of it the same comment.

    Its state is pending; done; refused: its author may not; failed: GitHub could not be asked whether he may.
    """

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
    results: Mapped[list[Any]] = mapped_column(default=list)
    """`[{"line", "ok", "text"}]`, one for each line."""
    detail: Mapped[str | None]
    commented_at: Mapped[datetime]
    """By GitHub's clock."""
    done_at: Mapped[datetime | None]
