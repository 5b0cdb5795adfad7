"""Every query about schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import Job, Project, Schedule
from gprojci_service.models.job import OBSERVING_KINDS, OPEN_STATES


def of_project(session: Session, project_id: int) -> Schedule | None:
    return session.scalar(select(Schedule).where(Schedule.project_id == project_id).with_for_update())


def all_schedules(session: Session) -> Sequence[tuple[Schedule, Project]]:
    rows = session.execute(
        select(Schedule, Project).join(Project, Project.id == Schedule.project_id).order_by(Project.name)
    )
    return [(row[0], row[1]) for row in rows]


def due(session: Session, moment: datetime) -> Sequence[tuple[Schedule, Project]]:
    return [row for row in all_schedules(session) if row[0].next_run_at <= moment]


def newest_head(session: Session, project: Project) -> str | None:
    """The head of the default branch that the newest job of a push to it names."""
    return session.scalar(
        select(Job.head_sha)
        .where(Job.project_id == project.id, Job.ref == project.default_branch, Job.pull_request_id.is_(None))
        .where(Job.kind.not_in(OBSERVING_KINDS))
        .order_by(Job.id.desc())
        .limit(1)
    )


def open_job(session: Session, project_id: int) -> int | None:
    """A job of an earlier run that has not ended."""
    return session.scalar(
        select(Job.id).where(Job.project_id == project_id, Job.kind == "schedule", Job.state.in_(OPEN_STATES)).limit(1)
    )
