"""Every query about training runs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session, undefer

from gprojci_service.models import Training, TrainingRun


def by_name(session: Session, name: str) -> Training | None:
    return session.scalar(select(Training).where(Training.name == name))


def locked(session: Session, name: str) -> Training | None:
    """Locked: processes that train side by side report their runs one after the other."""
    query = select(Training).where(Training.name == name).with_for_update()
    return session.scalar(query.execution_options(populate_existing=True))


def newest(session: Session, limit: int) -> Sequence[Training]:
    return session.scalars(select(Training).order_by(Training.begun_at.desc(), Training.id.desc()).limit(limit)).all()


def runs(session: Session, trainings: Sequence[Training], *, whole: bool = False) -> Sequence[TrainingRun]:
    """Their runs, as backends came and by seed; the bodies, which are large, only where `whole`."""
    query = select(TrainingRun).where(TrainingRun.training_id.in_([training.id for training in trainings]))
    if whole:
        query = query.options(undefer(TrainingRun.body))
    return session.scalars(query.order_by(TrainingRun.training_id, TrainingRun.id)).all()


def all_runs(session: Session) -> Sequence[tuple[str, TrainingRun]]:
    """Of all trainings, each with its training's name, without bodies."""
    query = select(Training.name, TrainingRun).join(Training, Training.id == TrainingRun.training_id)
    return session.execute(query.order_by(TrainingRun.id)).all()


def remove(session: Session, training: Training) -> None:
    session.execute(delete(TrainingRun).where(TrainingRun.training_id == training.id))
    session.delete(training)
