"""Queries of what is shared: what stands on a default branch."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from gprojci_service.models import Commit, Job, Project, Report, Sample, Series, Verdict
from gprojci_service.models.job import OBSERVING_KINDS


def _on_default_branch(project: Project) -> ColumnElement[bool]:
    """Jobs of the branch's head, in the order in which it moved: not those that look at older commits once more."""
    return and_(
        Job.project_id == project.id,
        Job.ref == project.default_branch,
        Job.pull_request_id.is_(None),
        Job.kind.not_in(OBSERVING_KINDS),
    )


def newest_verdict(session: Session, project: Project) -> Verdict | None:
    """The newest decision on the default branch."""
    query = (
        select(Verdict)
        .join(Job, Job.id == Verdict.job_id)
        .where(_on_default_branch(project))
        .order_by(Job.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def verdicts(session: Session, project: Project, limit: int) -> list[tuple[Verdict, Job, Commit | None]]:
    """Decisions on the default branch with their commits, newest first."""
    query = (
        select(Verdict, Job, Commit)
        .join(Job, Job.id == Verdict.job_id)
        .outerjoin(Commit, and_(Commit.project_id == Job.project_id, Commit.sha == Job.head_sha))
        .where(_on_default_branch(project))
        .order_by(Verdict.decided_at.desc(), Verdict.id.desc())
        .limit(limit)
    )
    return [(row[0], row[1], row[2]) for row in session.execute(query)]


def newest_values(session: Session, project: Project, metric: str) -> list[tuple[Series, Sample, Commit]]:
    """Subjects' values of a metric in the newest session of the default branch that measured it, series by age."""
    of_branch = (
        select(Sample.report_id)
        .join(Series, Series.id == Sample.series_id)
        .join(Report, and_(Report.id == Sample.report_id, Report.accepted.is_(True)))
        .join(Job, Job.id == Report.job_id)
        .where(Series.project_id == project.id, Series.metric == metric, Sample.revision == "head")
        .where(_on_default_branch(project))
        .order_by(Sample.report_id.desc())
        .limit(1)
    )
    report_id = session.scalar(of_branch)
    query = (
        select(Series, Sample, Commit)
        .join(Sample, Sample.series_id == Series.id)
        .join(Commit, Commit.id == Sample.commit_id)
        .where(Sample.report_id == report_id, Series.metric == metric, Sample.revision == "head")
        .order_by(Series.id)
    )
    return [(row[0], row[1], row[2]) for row in session.execute(query)]
