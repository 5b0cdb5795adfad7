"""Every query about the outbox of reports to GitHub."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gprojci_service.models import GithubReport, Job, Project, PullRequest


def by_id(session: Session, report_id: int) -> GithubReport | None:
    return session.get(GithubReport, report_id)


def locked_of_subject(session: Session, report: GithubReport) -> Sequence[GithubReport]:
    """The reports that say the same kind of thing about the same as this one, oldest first, locked.

    That is a job's reports of one kind, a pull request's of our comment, and those of the reaction to one comment.
    """
    query = select(GithubReport).where(GithubReport.kind == report.kind)
    if report.job_id is not None:
        query = query.where(GithubReport.job_id == report.job_id)
    else:
        query = query.where(GithubReport.pull_request_id == report.pull_request_id)
    if report.kind == "reaction":
        query = query.where(GithubReport.path == report.path)
    query = query.order_by(GithubReport.id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).all()


def newest_check_run(session: Session, job_id: int) -> GithubReport | None:
    """The last that was to be said about a job's check run."""
    return session.scalar(
        select(GithubReport)
        .where(GithubReport.job_id == job_id, GithubReport.kind == "check_run")
        .order_by(GithubReport.id.desc())
        .limit(1)
    )


def repository_name(session: Session, report: GithubReport) -> str:
    """Full name of the repository that a report is about."""
    query = select(Project.name)
    if report.job_id is not None:
        query = query.join(Job, Job.project_id == Project.id).where(Job.id == report.job_id)
    else:
        query = query.join(PullRequest, PullRequest.project_id == Project.id)
        query = query.where(PullRequest.id == report.pull_request_id)
    return session.scalars(query).one()


def due(session: Session, created_before: datetime, moment: datetime) -> Sequence[int]:
    """Pending reports, oldest first, whose message may be lost or whose time to be tried again has come."""
    return session.scalars(
        select(GithubReport.id)
        .where(GithubReport.state == "pending", GithubReport.created_at < created_before)
        .where(or_(GithubReport.next_attempt_at.is_(None), GithubReport.next_attempt_at <= moment))
        .order_by(GithubReport.id)
        .limit(1000)
    ).all()
