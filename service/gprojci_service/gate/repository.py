"""Every query about verdicts and overrides."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import Job, Override, Project, Verdict


def of_job(session: Session, job_id: int) -> Verdict | None:
    return session.scalar(select(Verdict).where(Verdict.job_id == job_id))


def of_head(session: Session, project_id: int, head_sha: str) -> list[Verdict]:
    """The verdict of the newest decided job of each kind of measurement of a commit."""
    newest: dict[tuple[str, str, str | None], Verdict] = {}
    query = select(Verdict, Job).join(Job, Job.id == Verdict.job_id).order_by(Job.id.desc())
    for verdict, job in session.execute(query.where(Job.project_id == project_id, Job.head_sha == head_sha)):
        newest.setdefault((job.hardware, "baseline" if job.kind == "baseline" else "", job.base_sha), verdict)
    return list(newest.values())


def overrides_of(session: Session, project_id: int, head_sha: str) -> Sequence[Override]:
    """What was accepted for a commit, oldest first."""
    return session.scalars(
        select(Override).where(Override.project_id == project_id, Override.head_sha == head_sha).order_by(Override.id)
    ).all()


def override_of(session: Session, project_id: int, head_sha: str, limit_key: str, backend: str) -> Override | None:
    return session.scalar(
        select(Override).where(
            Override.project_id == project_id,
            Override.head_sha == head_sha,
            Override.limit_key == limit_key,
            Override.backend == backend,
        )
    )


def search_overrides(session: Session, *, project: str | None, head_sha: str | None, limit: int) -> Sequence[Override]:
    query = select(Override).order_by(Override.id.desc()).limit(limit)
    if project:
        query = query.join(Project, Project.id == Override.project_id).where(Project.name == project)
    if head_sha:
        query = query.where(Override.head_sha.startswith(head_sha, autoescape=True))
    return session.scalars(query).all()


def search(session: Session, *, project: str | None, head_sha: str | None, limit: int) -> Sequence[Verdict]:
    query = select(Verdict).order_by(Verdict.id.desc()).limit(limit)
    if project:
        query = query.join(Project, Project.id == Verdict.project_id).where(Project.name == project)
    if head_sha:
        query = query.where(Verdict.head_sha.startswith(head_sha, autoescape=True))
    return session.scalars(query).all()
