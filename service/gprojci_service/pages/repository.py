"""Every query of the pages; each returns rows or small records, and none decides anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, bindparam, func, select
from sqlalchemy.orm import Session, aliased, defer

from gprojci_service.models import (
    Attempt,
    Bisection,
    Build,
    Commit,
    GithubReport,
    InputSet,
    Job,
    LogChunk,
    Project,
    PullRequest,
    Regression,
    Report,
    Verdict,
    Worker,
)
from gprojci_service.models.job import OBSERVING_KINDS
from gprojci_service.models.regression import OPEN_REGRESSION_STATES
from gprojci_service.pages.formatting import first_line, short_sha


@dataclass(frozen=True)
class JobRow:
    """A job with what a list says about it."""

    job: Job
    project: Project
    commit: Commit | None
    pull_request: PullRequest | None
    verdict: Verdict | None

    @property
    def about(self) -> str:
        """Title of its pull request, else the subject of its commit, else which commit it is."""
        said = self.pull_request.title if self.pull_request else self.commit.message if self.commit else None
        return first_line(said) or f"Commit {short_sha(self.job.head_sha)}"

    @property
    def state(self) -> str:
        """The verdict where there is one, else the state; a job that ended without either reads as an error."""
        if self.verdict is not None:
            return self.verdict.verdict
        return "error" if self.job.state == "finished" else self.job.state

    @property
    def seconds(self) -> float | None:
        """From the start of its work to its end; None while either is missing."""
        if self.job.started_at is None or self.job.finished_at is None:
            return None
        return (self.job.finished_at - self.job.started_at).total_seconds()


def job_query() -> Select[Job, Project, Commit, PullRequest, Verdict]:
    """Jobs with what a list says about them."""
    return (
        select(Job, Project, Commit, PullRequest, Verdict)
        .join(Project, Project.id == Job.project_id)
        .outerjoin(Commit, and_(Commit.project_id == Job.project_id, Commit.sha == Job.head_sha))
        .outerjoin(PullRequest, PullRequest.id == Job.pull_request_id)
        .outerjoin(Verdict, Verdict.job_id == Job.id)
    )


# The evidence of a verdict is some hundred findings long, and lists do not show it.
WITHOUT_EVIDENCE = (defer(Verdict.evidence, raiseload=True), defer(Verdict.policy, raiseload=True))


# What every job's page asks, made once: that takes longer than PostgreSQL's answers to most of it.
_JOB = job_query().where(Job.id == bindparam("job_id"))
_JOB_WITH_RESULT = (
    _JOB.add_columns(Report)
    .outerjoin(Report, and_(Report.job_id == Job.id, Report.accepted.is_(True)))
    .options(defer(Report.body, raiseload=True))
)
_ATTEMPTS = (
    select(Attempt, Worker.name)
    .join(Worker, Worker.id == Attempt.worker_id)
    .where(Attempt.job_id == bindparam("job_id"))
    .order_by(Attempt.number)
)
_BUILDS = select(Build).where(Build.attempt_id == bindparam("attempt_id")).order_by(Build.revision.desc())
_LOG = select(LogChunk.text).where(LogChunk.attempt_id == bindparam("attempt_id")).order_by(LogChunk.sequence)
_TOLD = select(GithubReport).where(GithubReport.job_id == bindparam("job_id")).order_by(GithubReport.id)
_NEWEST_SESSION = (
    select(Report.job_id, Report.body["environment"], Report.body["ruler"])
    .join(Job, Job.id == Report.job_id)
    .where(Report.accepted.is_(True), Job.project_id == bindparam("project_id"), Job.head_sha == bindparam("head_sha"))
    .where(Job.hardware == bindparam("hardware"), Job.id != bindparam("other_than"))
    .order_by(Report.id.desc())
    .limit(1)
)


def projects(session: Session) -> list[Project]:
    """All projects that are not archived, by name."""
    return list(session.scalars(select(Project).where(Project.archived_at.is_(None)).order_by(Project.name)))


def all_projects(session: Session) -> list[Project]:
    """All projects, archived ones too, by name."""
    return list(session.scalars(select(Project).order_by(Project.name)))


def open_pull_requests(session: Session, project_ids: Iterable[int]) -> dict[int, int]:
    """How many pull requests are open, by project; a project that has none is left out."""
    query = select(PullRequest.project_id, func.count()).where(PullRequest.state == "open")
    query = query.where(PullRequest.project_id.in_(list(project_ids))).group_by(PullRequest.project_id)
    return {row[0]: row[1] for row in session.execute(query)}


def project_by_name(session: Session, name: str) -> Project | None:
    """The project called `owner/name`."""
    return session.scalar(select(Project).where(Project.name == name))


def job_row(session: Session, job_id: int) -> JobRow | None:
    """One job."""
    row = session.execute(_JOB, {"job_id": job_id}).first()
    return None if row is None else JobRow(*row)


def job_with_result(session: Session, job_id: int) -> tuple[JobRow, Report | None] | None:
    """One job and its result, without the result's body, which is large."""
    row = session.execute(_JOB_WITH_RESULT, {"job_id": job_id}).first()
    return None if row is None else (JobRow(*row[:-1]), row[-1])


def measured_against_base(session: Session, project_id: int, limit: int) -> list[JobRow]:
    """The newest jobs of a project that measured head and base in one session."""
    query = (
        job_query()
        .options(*WITHOUT_EVIDENCE)
        .join(Report, and_(Report.job_id == Job.id, Report.accepted.is_(True)))
        .where(Job.project_id == project_id, Job.merge_base_sha.is_not(None))
        .order_by(Job.id.desc())
        .limit(limit)
    )
    return [JobRow(*row) for row in session.execute(query)]


def newest_job_of_open_pull_requests(session: Session, project_ids: Iterable[int], limit: int = 50) -> list[JobRow]:
    """The newest job about the present head of each open pull request, newest first."""
    newest = (
        select(func.max(Job.id))
        .join(PullRequest, PullRequest.id == Job.pull_request_id)
        .where(Job.project_id.in_(list(project_ids)), PullRequest.state == "open", Job.head_sha == PullRequest.head_sha)
        .where(Job.kind != "baseline")  # asked for beside the one that decides the merge
        .group_by(Job.pull_request_id)
    )
    query = job_query().options(*WITHOUT_EVIDENCE).where(Job.id.in_(newest))
    rows = session.execute(query.order_by(Job.id.desc()).limit(limit))
    return [JobRow(*row) for row in rows]


def newest_decided_on_default_branch(session: Session, project_ids: Iterable[int]) -> dict[int, JobRow]:
    """Per project the newest decided job of its default branch."""
    newest = (
        select(func.max(Job.id))
        .join(Project, Project.id == Job.project_id)
        .join(Verdict, Verdict.job_id == Job.id)
        .where(Job.project_id.in_(list(project_ids)), Job.ref == Project.default_branch, Job.pull_request_id.is_(None))
        .where(Job.kind.not_in(OBSERVING_KINDS))
        .group_by(Job.project_id)
    )
    query = job_query().options(*WITHOUT_EVIDENCE).where(Job.id.in_(newest))
    return {row[0].project_id: JobRow(*row) for row in session.execute(query)}


def _judged_on_default_branch(project: Project, hardware: str) -> Select[Job, Project, Commit, PullRequest, Verdict]:
    return (
        job_query()
        .options(*WITHOUT_EVIDENCE)
        .where(Job.project_id == project.id, Job.ref == project.default_branch, Job.pull_request_id.is_(None))
        .where(Job.kind.not_in(OBSERVING_KINDS), Job.hardware == hardware, Verdict.id.is_not(None))
    )


def newest_green(session: Session, project: Project, before: Job) -> JobRow | None:
    """The newest job of the default branch that passed before a job, on its hardware class."""
    query = _judged_on_default_branch(project, before.hardware).where(Verdict.verdict == "pass", Job.id < before.id)
    row = session.execute(query.order_by(Job.id.desc()).limit(1)).first()
    return None if row is None else JobRow(*row)


def judged_between(session: Session, project: Project, after: Job, last: Job, limit: int = 200) -> list[JobRow]:
    """Judged jobs of the default branch after one and up to another of the same hardware class, oldest first."""
    query = _judged_on_default_branch(project, last.hardware).where(Job.id > after.id, Job.id <= last.id)
    return [JobRow(*row) for row in session.execute(query.order_by(Job.id).limit(limit))]


def open_regressions(session: Session, project_ids: Iterable[int]) -> dict[int, int]:
    """How many regressions are open, by project; a project that has none is left out."""
    query = (
        select(Regression.project_id, func.count())
        .where(Regression.project_id.in_(list(project_ids)), Regression.state.in_(OPEN_REGRESSION_STATES))
        .group_by(Regression.project_id)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def refs(session: Session, project_id: int) -> list[str]:
    """Branches of a project that jobs of pushes name, busiest first; at most 50."""
    query = (
        select(Job.ref)
        .where(Job.project_id == project_id, Job.ref.is_not(None), Job.pull_request_id.is_(None))
        .where(Job.kind != "merge_group")  # the merge queue makes a branch of its own for each
        .group_by(Job.ref)
        .order_by(func.count().desc())
        .limit(50)
    )
    return [ref for ref in session.scalars(query) if ref]


def job_counts(session: Session) -> dict[str, int]:
    """Jobs per state, and decided ones per verdict."""
    counts: dict[str, int] = {}
    for column in (Job.state, Verdict.verdict):
        for key, count in session.execute(select(column, func.count()).group_by(column)):
            counts[key] = count
    return counts


def oldest_waiting(session: Session) -> datetime | None:
    """Since when the oldest queued job waits."""
    return session.scalar(select(func.min(Job.created_at)).where(Job.state == "queued"))


def workers(session: Session) -> list[tuple[Worker, Attempt | None]]:
    """Workers by name, each with the attempt it is running."""
    running = and_(Attempt.worker_id == Worker.id, Attempt.state == "running")
    query = select(Worker, Attempt).outerjoin(Attempt, running).order_by(Worker.name, Attempt.id.desc())
    rows: dict[int, tuple[Worker, Attempt | None]] = {}
    for worker, attempt in session.execute(query):
        rows.setdefault(worker.id, (worker, attempt))
    return list(rows.values())


def attempts(session: Session, job_id: int) -> list[tuple[Attempt, str]]:
    """Attempts of a job in order, each with its worker's name."""
    return [(attempt, name) for attempt, name in session.execute(_ATTEMPTS, {"job_id": job_id})]


def builds(session: Session, attempt_id: int) -> list[Build]:
    """Builds of an attempt, head before base."""
    return list(session.scalars(_BUILDS, {"attempt_id": attempt_id}))


def log_text(session: Session, attempt_id: int) -> str:
    """The whole log of an attempt."""
    return "".join(session.scalars(_LOG, {"attempt_id": attempt_id}))


def told(session: Session, job_id: int) -> list[GithubReport]:
    """What GitHub was or would have been told about a job, in order."""
    return list(session.scalars(_TOLD, {"job_id": job_id}))


def measured_commits(session: Session, project_id: int, limit: int = 60) -> list[Commit]:
    """Commits with a result as head, newest first."""
    query = (
        select(Commit)
        .join(Job, and_(Job.project_id == Commit.project_id, Job.head_sha == Commit.sha))
        .join(Report, and_(Report.job_id == Job.id, Report.accepted.is_(True)))
        .where(Commit.project_id == project_id)
        .order_by(Report.id.desc())
        .limit(limit)
    )
    return list(dict.fromkeys(session.scalars(query)))


def verdict_of_job(session: Session, job_id: int) -> Verdict | None:
    """The decision on a job."""
    return session.scalar(select(Verdict).where(Verdict.job_id == job_id))


@dataclass(frozen=True)
class ReportFacts:
    """The newest result of a project on a hardware class, without its measurements."""

    report_id: int
    job_id: int
    backends: list[dict[str, Any]]
    environment: dict[str, Any]


def newest_report_facts(session: Session, project_id: int, hardware: str | None, ref: str | None) -> ReportFacts | None:
    """The newest accepted report of pushes to `ref` (None: of anything), on a hardware class of jobs (None: any)."""
    query = (
        select(Report.id, Report.job_id, Report.body["backends"], Report.body["environment"])
        .join(Job, Job.id == Report.job_id)
        .where(Report.accepted.is_(True), Job.project_id == project_id, Job.kind.not_in(OBSERVING_KINDS))
        .order_by(Report.id.desc())
        .limit(1)
    )
    if hardware is not None:
        query = query.where(Job.hardware == hardware)
    if ref is not None:
        query = query.where(Job.ref == ref, Job.pull_request_id.is_(None))
    row = session.execute(query).first()
    return None if row is None else ReportFacts(row[0], row[1], row[2], row[3])


@dataclass(frozen=True)
class SessionFacts:
    """Environment and ruler of a result, as its JSON has them, and the job that it is of."""

    job_id: int
    facts: dict[str, Any]


def newest_session_of(
    session: Session, project_id: int, head_sha: str, hardware: str, *, other_than: int
) -> SessionFacts | None:
    """The newest result with a commit as its head on a hardware class, of any job but one."""
    sought = {"project_id": project_id, "head_sha": head_sha, "hardware": hardware, "other_than": other_than}
    row = session.execute(_NEWEST_SESSION, sought).first()
    return None if row is None else SessionFacts(row[0], {"environment": row[1], "ruler": row[2]})


def measured_hardware(session: Session, project_id: int) -> list[str]:
    """Hardware classes of a project's jobs that have a result."""
    query = (
        select(Job.hardware)
        .join(Report, and_(Report.job_id == Job.id, Report.accepted.is_(True)))
        .where(Job.project_id == project_id)
        .distinct()
        .order_by(Job.hardware)
    )
    return list(session.scalars(query))


def evidence_of(session: Session, verdict_ids: Iterable[int]) -> dict[int, Verdict]:
    """Verdicts whole, with their evidence, by number."""
    query = select(Verdict).where(Verdict.id.in_(list(verdict_ids)))
    rows = session.scalars(query.execution_options(populate_existing=True))
    return {verdict.id: verdict for verdict in rows}


def policy_in_force(session: Session, project_id: int) -> dict[str, Any]:
    """The limits that the newest judged report of a project was held against; empty where none was."""
    query = (
        select(Verdict.policy)
        .join(Report, and_(Report.job_id == Verdict.job_id, Report.accepted.is_(True)))
        .where(Verdict.project_id == project_id)
        .order_by(Verdict.id.desc())
        .limit(1)
    )
    return session.scalar(query) or {}


def input_sets(session: Session) -> list[InputSet]:
    """Input sets, the most recently used first."""
    return list(session.scalars(select(InputSet).order_by(InputSet.name, InputSet.last_seen_at.desc())))


def regressions(
    session: Session, project: str, states: Iterable[str], sort: str, offset: int, limit: int
) -> list[tuple[Regression, Project]]:
    """Regressions with their project; `sort` is `newest` or `changed`."""
    query = select(Regression, Project).join(Project, Project.id == Regression.project_id)
    if project:
        query = query.where(Project.name == project)
    if states := tuple(states):
        query = query.where(Regression.state.in_(states))
    order = Regression.updated_at.desc() if sort == "changed" else Regression.id.desc()
    rows = session.execute(query.order_by(order, Regression.id.desc()).offset(offset).limit(limit))
    return [(row[0], row[1]) for row in rows]


def bisections(session: Session, project: str, state: str, offset: int, limit: int) -> list[tuple[Bisection, Project]]:
    """Searches with their project, newest first; of a project and in a state, where they are not empty."""
    query = select(Bisection, Project).join(Project, Project.id == Bisection.project_id)
    if project:
        query = query.where(Project.name == project)
    if state:
        query = query.where(Bisection.state == state)
    rows = session.execute(query.order_by(Bisection.id.desc()).offset(offset).limit(limit))
    return [(row[0], row[1]) for row in rows]


def regressions_between(session: Session, project_id: int, last_good: str, first_bad: str) -> list[int]:
    """Numbers of a project's regressions whose range has these ends, newest first."""
    good, bad = aliased(Commit), aliased(Commit)
    query = (
        select(Regression.id)
        .join(good, good.id == Regression.last_good_id)
        .join(bad, bad.id == Regression.first_bad_id)
        .where(Regression.project_id == project_id, good.sha == last_good, bad.sha == first_bad)
        .order_by(Regression.id.desc())
    )
    return list(session.scalars(query))
