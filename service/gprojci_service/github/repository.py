"""Every query about the outbox of reports to GitHub."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gprojci_service.models import GithubReport, Job, Project


def by_id(session: Session, report_id: int) -> GithubReport | None:
    return session.get(GithubReport, report_id)


def locked_of_job(session: Session, job_id: int, kind: str) -> Sequence[GithubReport]:
    """A job's reports of one kind, oldest first, locked."""
    return session.scalars(
        select(GithubReport)
        .where(GithubReport.job_id == job_id, GithubReport.kind == kind)
        .order_by(GithubReport.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).all()


def newest_check_run(session: Session, job_id: int) -> GithubReport | None:
    """The last that was to be said about a job's check run."""
    return session.scalar(
        select(GithubReport)
        .where(GithubReport.job_id == job_id, GithubReport.kind == "check_run")
        .order_by(GithubReport.id.desc())
        .limit(1)
    )


def repository_name(session: Session, job_id: int) -> str:
    """Full name of the repository that a job is about."""
    return session.scalars(select(Project.name).join(Job, Job.project_id == Project.id).where(Job.id == job_id)).one()


def due(session: Session, created_before: datetime, moment: datetime) -> Sequence[int]:
    """Pending reports, oldest first, whose message may be lost or whose time to be tried again has come."""
    return session.scalars(
        select(GithubReport.id)
        .where(GithubReport.state == "pending", GithubReport.created_at < created_before)
        .where(or_(GithubReport.next_attempt_at.is_(None), GithubReport.next_attempt_at <= moment))
        .order_by(GithubReport.id)
        .limit(1000)
    ).all()
