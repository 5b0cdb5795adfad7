"""Queries of lists of jobs: filtered, in several orders, page by page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session, aliased

from gprojci_service.models import Commit, Job, Project, PullRequest, Verdict
from gprojci_service.pages.repository import WITHOUT_EVIDENCE, JobRow, job_query


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list has; what is empty chooses nothing.

    Attributes:
        state: a job state or a verdict.
        ref: a branch, whose pull requests are left out.
        text: the beginning of a head's SHA, a pull request as `#7`, or words of a title, message, author or branch.
    """

    project_id: int | None = None
    project: str = ""
    state: str = ""
    ref: str = ""
    hardware: str = ""
    kind: str = ""
    text: str = ""


def job_rows(
    session: Session, chosen: JobFilter = JobFilter(), *, before: int | None = None, limit: int = 50
) -> list[JobRow]:
    """Jobs, newest first; `before` is a job id to page on from."""
    query = _chosen(chosen).order_by(Job.id.desc()).limit(limit)
    if before is not None:
        query = query.where(Job.id < before)
    return [JobRow(*row) for row in session.execute(query)]


def jobs_by_age(session: Session, chosen: JobFilter, *, after: int | None, limit: int) -> list[JobRow]:
    """Jobs, oldest first; `after` is a job id to page on from."""
    query = _chosen(chosen).order_by(Job.id).limit(limit)
    if after is not None:
        query = query.where(Job.id > after)
    return [JobRow(*row) for row in session.execute(query)]


def jobs_as_claimed(session: Session, chosen: JobFilter, limit: int) -> list[JobRow]:
    """Queued jobs in the order in which workers claim them, class by class: projects take turns at each priority."""
    of_a_project = (Job.hardware, Job.priority, Job.project_id)
    turn = select(Job.id, func.row_number().over(partition_by=of_a_project, order_by=Job.id).label("turn"))
    waiting = turn.where(Job.state == "queued").subquery()
    earlier = aliased(Job)
    of_the_same = (earlier.hardware == Job.hardware, earlier.project_id == Job.project_id)
    served = select(func.max(earlier.started_at)).where(*of_the_same).scalar_subquery()
    order = (Job.hardware, Job.priority, waiting.c.turn, served.asc().nulls_first(), Job.project_id)
    query = _chosen(chosen).join(waiting, waiting.c.id == Job.id).order_by(*order)
    return [JobRow(*row) for row in session.execute(query.limit(limit))]


def _chosen(chosen: JobFilter) -> Select[Job, Project, Commit, PullRequest, Verdict]:
    query = job_query().options(*WITHOUT_EVIDENCE)
    if chosen.project_id is not None:
        query = query.where(Job.project_id == chosen.project_id)
    if chosen.project:
        query = query.where(Project.name == chosen.project)
    if chosen.state in ("pass", "fail", "neutral", "error"):
        query = query.where(Verdict.verdict == chosen.state)
    elif chosen.state:
        query = query.where(Job.state == chosen.state)
    if chosen.ref:
        query = query.where(Job.ref == chosen.ref, Job.pull_request_id.is_(None))
    if chosen.hardware:
        query = query.where(Job.hardware == chosen.hardware)
    if chosen.kind:
        query = query.where(Job.kind == chosen.kind)
    text = chosen.text.strip()
    if re.fullmatch(r"#\d{1,9}", text):
        return query.where(PullRequest.number == int(text[1:]))
    if re.fullmatch(r"[0-9a-f]{4,40}", text.lower()):
        return query.where(Job.head_sha.startswith(text.lower()))
    for word in text.split()[:5]:
        named = (PullRequest.title, Commit.message, Commit.author_name, Job.ref)
        query = query.where(or_(*(column.icontains(word, autoescape=True) for column in named)))
    return query


def job_hardware(session: Session) -> list[str]:
    """Hardware classes that any job is of."""
    return list(session.scalars(select(Job.hardware).distinct().order_by(Job.hardware)))
