"""Every query about verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import Project, Verdict


def of_job(session: Session, job_id: int) -> Verdict | None:
    return session.scalar(select(Verdict).where(Verdict.job_id == job_id))


def search(session: Session, *, project: str | None, head_sha: str | None, limit: int) -> Sequence[Verdict]:
    query = select(Verdict).order_by(Verdict.id.desc()).limit(limit)
    if project:
        query = query.join(Project, Project.id == Verdict.project_id).where(Project.name == project)
    if head_sha:
        query = query.where(Verdict.head_sha.startswith(head_sha, autoescape=True))
    return session.scalars(query).all()
