"""Every query about bisections, and about jobs that answer their questions already."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gprojci_service.models import Bisection, Job, Project, Report
from gprojci_service.models.job import OPEN_STATES


def by_id(session: Session, bisection_id: int) -> Bisection | None:
    return session.get(Bisection, bisection_id)


def locked(session: Session, bisection_id: int) -> Bisection | None:
    return session.scalar(
        select(Bisection)
        .where(Bisection.id == bisection_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def search(session: Session, *, project: str | None, state: str | None, limit: int) -> Sequence[Bisection]:
    query = select(Bisection).order_by(Bisection.id.desc()).limit(limit)
    if project:
        query = query.join(Project, Project.id == Bisection.project_id).where(Project.name == project)
    if state:
        query = query.where(Bisection.state == state)
    return session.scalars(query).all()


def waiting_for(session: Session, job_id: int) -> Sequence[int]:
    """Running bisections that wait for a job."""
    return session.scalars(select(Bisection.id).where(Bisection.state == "running", Bisection.job_id == job_id)).all()


def left_behind(session: Session) -> Sequence[int]:
    """Running bisections whose job has ended."""
    return session.scalars(
        select(Bisection.id)
        .outerjoin(Job, Job.id == Bisection.job_id)
        .where(Bisection.state == "running", or_(Job.id.is_(None), Job.state.not_in(OPEN_STATES)))
    ).all()


def answering_job(session: Session, bisection: Bisection, head_sha: str, base_sha: str, effort: int) -> Job | None:
    """A job, done or under way, that measures head against base with at least this effort; the done ones first."""
    done = session.scalar(
        select(Job)
        .join(Report, Report.job_id == Job.id)
        .where(Report.accepted.is_(True), Job.state == "finished", Job.merge_base_sha == base_sha)
        .where(Job.project_id == bisection.project_id, Job.hardware == bisection.hardware)
        .where(Job.head_sha == head_sha, Job.effort >= effort)
        .order_by(Job.effort.desc(), Job.id.desc())
        .limit(1)
    )
    if done is not None:
        return done
    return session.scalar(
        select(Job)
        .where(Job.project_id == bisection.project_id, Job.hardware == bisection.hardware)
        .where(Job.head_sha == head_sha, Job.base_sha == base_sha, Job.effort >= effort)
        .where(Job.state.in_(OPEN_STATES))
        .order_by(Job.id)
        .limit(1)
    )


def unbuildable_job(session: Session, bisection: Bisection, head_sha: str) -> Job | None:
    """The newest finished job about a commit, if it found that the commit cannot be built."""
    newest = session.scalar(
        select(Job)
        .where(Job.project_id == bisection.project_id, Job.hardware == bisection.hardware)
        .where(Job.head_sha == head_sha, Job.state == "finished")
        .order_by(Job.id.desc())
        .limit(1)
    )
    return newest if newest is not None and newest.failure_kind == "build_error" else None
