"""Every query about comments with commands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service import retries
from gprojci_service.models import PullRequestComment


def by_id(session: Session, row_id: int) -> PullRequestComment | None:
    return session.get(PullRequestComment, row_id)


def by_github_id(session: Session, github_id: int) -> PullRequestComment | None:
    return session.scalar(select(PullRequestComment).where(PullRequestComment.github_id == github_id))


def locked(session: Session, row_id: int) -> PullRequestComment | None:
    return session.scalar(
        select(PullRequestComment)
        .where(PullRequestComment.id == row_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def first_pending(session: Session, project_id: int, number: int) -> PullRequestComment | None:
    """The comment on a pull request that is to be carried out before all others, as GitHub numbers them."""
    return session.scalar(
        select(PullRequestComment)
        .where(PullRequestComment.project_id == project_id, PullRequestComment.number == number)
        .where(PullRequestComment.state == "pending")
        .order_by(PullRequestComment.github_id)
        .limit(1)
    )


def due(session: Session, created_before: datetime, moment: datetime) -> Sequence[int]:
    """Pending comments, oldest first, whose message may be lost or whose time to be tried again has come."""
    return session.scalars(
        retries.due(PullRequestComment, created_before, moment).order_by(PullRequestComment.github_id)
    ).all()
