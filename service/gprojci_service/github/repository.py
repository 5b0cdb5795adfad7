"""Every query about the outbox of reports to GitHub."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service import retries
from gprojci_service.models import GithubReport, Job, Project, PullRequest, PullRequestComment, Verdict


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


def newest(session: Session, job_id: int, kind: str) -> GithubReport | None:
    """The last that was to be said about a job's check run or commit status."""
    return session.scalar(
        select(GithubReport)
        .where(GithubReport.job_id == job_id, GithubReport.kind == kind)
        .order_by(GithubReport.id.desc())
        .limit(1)
    )


def has_newer_status(session: Session, status: GithubReport) -> bool:
    """Whether another job has set this status of this commit since this report was made."""
    others = (
        select(GithubReport.id)
        .where(GithubReport.kind == "commit_status", GithubReport.path == status.path, GithubReport.id > status.id)
        .where(GithubReport.job_id != status.job_id)
        .where(GithubReport.payload["context"].as_string() == status.payload["context"])
    )
    return session.scalar(others.limit(1)) is not None


def repository_name(session: Session, report: GithubReport) -> str:
    """Full name of the repository that a report is about."""
    query = select(Project.name)
    if report.job_id is not None:
        query = query.join(Job, Job.project_id == Project.id).where(Job.id == report.job_id)
    else:
        query = query.join(PullRequest, PullRequest.project_id == Project.id)
        query = query.where(PullRequest.id == report.pull_request_id)
    return session.scalars(query).one()


def locked_comments(session: Session, pull_request_id: int) -> Sequence[GithubReport]:
    """What our comment on a pull request was to say so far, oldest first, locked."""
    return session.scalars(
        select(GithubReport)
        .where(GithubReport.pull_request_id == pull_request_id, GithubReport.kind == "comment")
        .order_by(GithubReport.id)
        .with_for_update()
    ).all()


def commands_taken(session: Session, pull_request: PullRequest, limit: int) -> list[PullRequestComment]:
    """The newest comments on a pull request whose commands were taken, oldest first."""
    newest = session.scalars(
        select(PullRequestComment)
        .where(PullRequestComment.project_id == pull_request.project_id)
        .where(PullRequestComment.number == pull_request.number, PullRequestComment.state == "done")
        .order_by(PullRequestComment.github_id.desc())
        .limit(limit)
    ).all()
    return list(reversed(newest))


def jobs_at_head(session: Session, pull_request: PullRequest) -> list[tuple[Job, Verdict | None]]:
    """The newest job on each hardware class about a pull request's head, and of each baseline, with its verdict."""
    newest: dict[tuple[str, str | None], tuple[Job, Verdict | None]] = {}
    query = select(Job, Verdict).outerjoin(Verdict, Verdict.job_id == Job.id).order_by(Job.id.desc())
    query = query.where(Job.pull_request_id == pull_request.id, Job.head_sha == pull_request.head_sha)
    session.flush()  # before what others have committed meanwhile is read over what this session knows
    for job, verdict in session.execute(query.execution_options(populate_existing=True)):
        newest.setdefault((job.hardware, job.base_sha if job.kind == "baseline" else None), (job, verdict))
    return sorted(newest.values(), key=lambda pair: pair[0].id)


def due(session: Session, created_before: datetime, moment: datetime) -> Sequence[int]:
    """Pending reports, oldest first, whose message may be lost or whose time to be tried again has come."""
    return session.scalars(retries.due(GithubReport, created_before, moment).order_by(GithubReport.id)).all()
