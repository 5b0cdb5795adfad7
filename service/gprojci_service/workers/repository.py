"""Every query about workers and their logs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gprojci_service.models import Attempt, LogChunk, Worker


def by_name(session: Session, name: str) -> Worker | None:
    return session.scalar(select(Worker).where(Worker.name == name).with_for_update())


def seen(session: Session, name: str, moment: datetime) -> Worker | None:
    """Notes when a worker was seen; it is locked from then on."""
    change = update(Worker).where(Worker.name == name).values(last_seen_at=moment).returning(Worker)
    return session.scalar(change, execution_options={"synchronize_session": False})


def all_workers(session: Session) -> Sequence[Worker]:
    return session.scalars(select(Worker).order_by(Worker.name)).all()


def jobs_by_worker(session: Session) -> dict[int, int]:
    """The job that each busy worker measures."""
    running = select(Attempt.worker_id, Attempt.job_id).where(Attempt.state == "running").order_by(Attempt.id)
    return dict(session.execute(running).all())


def log_chunk(session: Session, attempt_id: int, sequence: int) -> LogChunk | None:
    return session.scalar(select(LogChunk).where(LogChunk.attempt_id == attempt_id, LogChunk.sequence == sequence))
