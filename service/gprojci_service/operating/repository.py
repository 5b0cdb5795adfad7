"""Every query about the service as a whole: queues, lags, what workers did in the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gprojci_service.models import Attempt, GithubReport, Job, Notification, Verdict, WebhookDelivery, Worker
from gprojci_service.models.job import OPEN_STATES

OUTBOXES: dict[str, type[GithubReport] | type[Notification]] = {"github": GithubReport, "notification": Notification}


def open_jobs(session: Session) -> list[tuple[str, str, int, datetime]]:
    """Hardware class, state, how many open jobs, and when the oldest was made."""
    grouped = select(Job.hardware, Job.state, func.count(), func.min(Job.created_at)).where(Job.state.in_(OPEN_STATES))
    return [(*row,) for row in session.execute(grouped.group_by(Job.hardware, Job.state))]


def verdicts(session: Session) -> dict[str, int]:
    """How many verdicts there are of each kind."""
    return dict(session.execute(select(Verdict.verdict, func.count()).group_by(Verdict.verdict)).all())


def attempts(session: Session) -> dict[str, int]:
    """How many attempts there are in each state."""
    return dict(session.execute(select(Attempt.state, func.count()).group_by(Attempt.state)).all())


def ended_since(session: Session, moment: datetime) -> Sequence[tuple[Attempt, str]]:
    """Attempts that ended after a moment, each with its hardware class.

    Found by their leases, which have an index and end after their attempts did.
    """
    ended = select(Attempt, Job.hardware).join(Job, Job.id == Attempt.job_id)
    ended = ended.where(Attempt.lease_expires_at > moment, Attempt.finished_at > moment)
    return session.execute(ended).all()


def workers(session: Session) -> list[tuple[Worker, bool]]:
    """All workers, each with whether it measures now."""
    busy = select(Attempt.worker_id).where(Attempt.state == "running")
    return [(worker, is_busy) for worker, is_busy in session.execute(select(Worker, Worker.id.in_(busy)))]


def webhooks_waiting(session: Session) -> tuple[int, datetime | None]:
    """How many deliveries wait to be processed, and since when the oldest does."""
    waiting = select(func.count(), func.min(WebhookDelivery.received_at)).where(WebhookDelivery.state == "received")
    return session.execute(waiting).one()


def outbox_waiting(session: Session, outbox: str) -> tuple[int, datetime | None]:
    """How many messages of an outbox wait to be sent, and since when the oldest does."""
    kind = OUTBOXES[outbox]
    waiting = select(func.count(), func.min(kind.created_at)).where(kind.state == "pending")
    return session.execute(waiting).one()
