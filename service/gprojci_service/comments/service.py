"""Decisions about comments: is one taken, when is it carried out, what becomes of it where GitHub does not answer."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gprojci_service.comments import language, repository
from gprojci_service.database import send_after_commit
from gprojci_service.github.outbox import GIVE_UP_AFTER
from gprojci_service.github.outgoing import Answer
from gprojci_service.models import Project, PullRequestComment, now
from gprojci_service.queue import CARRY_OUT_COMMENT
from gprojci_service.retries import next_attempt


def receive(
    session: Session,
    project: Project,
    *,
    number: int,
    github_id: int,
    author: str,
    body: str,
    html_url: str | None,
    commented_at: datetime,
) -> PullRequestComment | None:
    """Keeps a comment that has commands, once, and has it carried out; None for one without or one that is known."""
    lines = language.lines(body)
    if not lines or repository.by_github_id(session, github_id) is not None:
        return None
    comment = PullRequestComment(
        project_id=project.id,
        number=number,
        github_id=github_id,
        author=author,
        html_url=html_url,
        lines=lines,
        commented_at=commented_at,
    )
    try:
        with session.begin_nested():
            session.add(comment)
    except IntegrityError:  # another delivery of it between the look and the insert
        return None
    send_after_commit(session, CARRY_OUT_COMMENT, comment.id)
    return comment


def turn_of(session: Session, row_id: int) -> PullRequestComment | None:
    """The comment, if it is to be carried out now: pending, due, and the first of its pull request."""
    comment = repository.by_id(session, row_id)
    if comment is None or comment.state != "pending" or comment.waits(now()):
        return None
    first = repository.first_pending(session, comment.project_id, comment.number)
    return comment if first is not None and first.id == comment.id else None


def put_off(session: Session, row_id: int, answer: Answer) -> PullRequestComment | None:
    """GitHub could not be asked: tries again later, for a week at most; what GitHub refuses is final.

    Returns the comment where it is final.
    """
    comment = repository.locked(session, row_id)
    if comment is None or comment.state != "pending":
        return None
    moment = now()
    comment.attempts += 1
    comment.detail, comment.next_attempt_at = answer.detail, None
    if answer.outcome == "again" and moment - comment.created_at < GIVE_UP_AFTER:
        comment.next_attempt_at = next_attempt(moment, comment.attempts, answer.not_before)
        return None
    comment.state, comment.done_at = "failed", moment
    send_next(session, comment)
    return comment


def send_next(session: Session, comment: PullRequestComment) -> None:
    """After one comment the next of its pull request has its turn."""
    session.flush()
    waiting = repository.first_pending(session, comment.project_id, comment.number)
    if waiting is not None:
        send_after_commit(session, CARRY_OUT_COMMENT, waiting.id)
