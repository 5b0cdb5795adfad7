"""Every query of the pages about series and their samples; rows are plain, as a page reads thousands of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, Select, and_, case, exists, func, or_, select, type_coerce
from sqlalchemy.orm import Session, aliased

from gprojci_service.database import among
from gprojci_service.models import Commit, Job, Report, Sample, Series, Verdict
from gprojci_service.results.repository import along_curves


class SeriesFacts(NamedTuple):
    """What a series is of."""

    id: int
    backend: str
    case: str
    metric: str
    unit: str


class SampleFacts(NamedTuple):
    """A sample's value and whose it is."""

    revision: str
    value: float
    low: float | None
    high: float | None


class ValueRow(NamedTuple):
    """One sample with the identity of its series and where it comes from."""

    series: SeriesFacts
    sample: SampleFacts
    commit: Commit
    job_id: int


class Offered(NamedTuple):
    """What a series is of and how it was measured."""

    id: int
    backend: str
    case: str
    metric: str
    unit: str
    hardware: str
    ruler_revision: str


class HistoryValue(NamedTuple):
    """A sample of a history."""

    series_id: int
    commit_id: int
    revision: str
    value: float
    low: float | None
    high: float | None
    report_id: int


class HistoryCommit(NamedTuple):
    """What a history says of a commit."""

    id: int
    sha: str
    message: str | None
    author_name: str | None
    authored_at: datetime | None
    created_at: datetime
    first_parent: str | None

    @property
    def parents(self) -> list[str]:
        """What its place in the order depends on."""
        return [self.first_parent] if self.first_parent else []


def _values(session: Session, condition: ColumnElement[bool]) -> list[ValueRow]:
    query = (
        select(
            Series.id,
            Series.backend,
            Series.case,
            Series.metric,
            Series.unit,
            Sample.revision,
            Sample.value,
            Sample.low,
            Sample.high,
            Sample.commit_id,
            Report.job_id,
        )
        .join_from(Sample, Series, Series.id == Sample.series_id)
        .join(Report, and_(Report.id == Sample.report_id, Report.accepted.is_(True)))
        .where(condition)
        .order_by(Sample.report_id)
    )
    rows = session.execute(query).all()
    commits = _commits(session, {row.commit_id for row in rows})
    return [
        ValueRow(
            SeriesFacts(number, backend, case_, metric, unit),
            SampleFacts(revision, value, low, high),
            commits[commit_id],
            job_id,
        )
        for number, backend, case_, metric, unit, revision, value, low, high, commit_id, job_id in rows
    ]


def _commits(session: Session, ids: Iterable[int]) -> dict[int, Commit]:
    return {commit.id: commit for commit in session.scalars(select(Commit).where(among(session, Commit.id, ids)))}


def report_values(session: Session, report_id: int, metrics: Iterable[str]) -> list[ValueRow]:
    """The samples of a report with one of the metrics, in the order in which they were stored."""
    rows = _values(session, and_(Sample.report_id == report_id, Series.metric.in_(list(metrics))))
    return sorted(rows, key=lambda row: row.series.id)


def job_values(session: Session, job_ids: Iterable[int], metrics: Iterable[str]) -> list[ValueRow]:
    """The samples of the results of jobs with one of the metrics."""
    reports = select(Report.id).where(Report.job_id.in_(list(job_ids)), Report.accepted.is_(True))
    return _values(session, and_(Sample.report_id.in_(reports), Series.metric.in_(list(metrics))))


def earlier_head_values(
    session: Session, project_id: int, report_id: int, keys: list[tuple[str, str]], ref: str, limit: int
) -> list[ValueRow]:
    """Head samples of pushes to `ref` before a report, of the (metric, case) pairs; the newest `limit` reports."""
    earlier = _sessions(project_id, ref).where(Report.id < report_id).order_by(Report.id.desc()).limit(limit)
    ids = list(session.scalars(earlier))
    wanted = or_(*(and_(Series.metric == metric, Series.case == case_) for metric, case_ in keys))
    return (
        _values(session, and_(among(session, Sample.report_id, ids), Sample.revision == "head", wanted)) if ids else []
    )


def metrics_of(session: Session, project_id: int) -> list[str]:
    """The metrics that a project has series of."""
    return list(session.scalars(select(Series.metric).where(Series.project_id == project_id).distinct()))


def series_of(session: Session, project_id: int, metric: str) -> list[Offered]:
    """The series of a project with a metric, oldest first."""
    columns = (getattr(Series, name) for name in Offered._fields)
    query = select(*columns).where(Series.project_id == project_id, Series.metric == metric).order_by(Series.id)
    return [Offered(*row) for row in session.execute(query)]


class Span(NamedTuple):
    """Sessions from one commit to another: the numbers of the first and the last report, and how many there are."""

    first: int
    last: int
    sessions: int


def span_of(session: Session, project_id: int, ref: str | None, first: str, last: str) -> Span | None:
    """The sessions from a commit's first to another's last; None where one of them has none, or they are not in this
    order.

    Args:
        ref: pushes to it count; None: anything.
        first: SHA of the older commit, or its first digits.
        last: the same of the newer one.
    """
    sessions = _sessions(project_id, ref)

    def report_of(sha: str, which: Callable[..., ColumnElement[int]]) -> int | None:
        for commit in (Job.head_sha, Job.merge_base_sha):  # some were measured as a base only
            of_commit = sessions.where(commit.startswith(sha, autoescape=True))
            found: int | None = session.scalar(
                of_commit.with_only_columns(which(Report.id), maintain_column_froms=True)
            )
            if found is not None:
                return found
        return None

    oldest, newest = report_of(first, func.min), report_of(last, func.max)
    if oldest is None or newest is None or newest < oldest:
        return None
    ids = sessions.where(Report.id.between(oldest, newest)).subquery()
    return Span(oldest, newest, session.scalar(select(func.count()).select_from(ids)) or 0)


def history_values(
    session: Session,
    project_id: int,
    series_ids: list[int],
    ref: str | None,
    sessions: int,
    between: Span | None = None,
) -> tuple[list[HistoryValue], dict[int, int]]:
    """Samples of the series in the newest `sessions` accepted reports that have any, of pushes to `ref` (None: of
    anything), oldest first; and the job of each of these reports. `between` keeps those of a span."""
    measured = exists().where(Sample.report_id == Report.id, among(session, Sample.series_id, series_ids))
    newest = _sessions(project_id, ref, between).add_columns(Report.job_id).where(measured)
    jobs = {row[0]: row[1] for row in session.execute(newest.order_by(Report.id.desc()).limit(sessions))}
    if not jobs:
        return [], jobs
    columns = (getattr(Sample, name) for name in HistoryValue._fields)
    query = select(*columns).where(among(session, Sample.series_id, series_ids), along_curves(session, jobs))
    found = map(HistoryValue._make, session.execute(query))
    return sorted(found, key=attrgetter("report_id")), jobs


def heads_at(session: Session, series_ids: Iterable[int], commit_id: int) -> dict[int, float]:
    """The newest accepted value of each series with this commit as head; without those that have none."""
    query = (
        select(Sample.series_id, Sample.value)
        .join(Report, and_(Report.id == Sample.report_id, Report.accepted.is_(True)))
        .where(among(session, Sample.series_id, series_ids), Sample.commit_id == commit_id, Sample.revision == "head")
        .order_by(Sample.report_id)
    )
    return {row.series_id: row.value for row in session.execute(query)}


def history_commits(session: Session, ids: Iterable[int]) -> list[HistoryCommit]:
    """Commits by their numbers."""
    columns = [getattr(Commit, name) for name in HistoryCommit._fields[:-1]]
    query = select(*columns, Commit.parents[0].as_string()).where(among(session, Commit.id, ids))
    return list(map(HistoryCommit._make, session.execute(query)))


@dataclass(frozen=True)
class Bucket:
    """A series over some adjacent sessions: its least, median and largest value, and the newest of the reports."""

    series_id: int
    place: int
    low: float
    middle: float
    high: float
    report_id: int


def history_buckets(
    session: Session,
    project_id: int,
    series_ids: list[int],
    ref: str | None,
    *,
    sessions: int | None,
    buckets: int,
    between: Span | None = None,
) -> list[Bucket]:
    """The newest `sessions` accepted reports (None: all) in `buckets` parts of as many each, oldest first; `between`
    keeps those of a span.

    The database does it, so that only the parts travel. Of each session the head's value counts, or the ruler's.
    """
    newest = _sessions(project_id, ref, between).order_by(Report.id.desc()).limit(sessions).subquery()
    numbered = select(
        newest.c.id,
        (func.row_number(type_=Integer).over(order_by=newest.c.id) - 1).label("number"),
        func.count().over().label("total"),
    ).subquery()
    placed = select(numbered.c.id, (numbered.c.number * buckets // numbered.c.total).label("place")).cte("placed")
    values = (
        select(Sample.series_id, placed.c.place, Sample.report_id, Sample.value)
        .join(placed, placed.c.id == Sample.report_id)
        .where(Sample.series_id.in_(series_ids), Sample.revision != "base")
    )
    if session.get_bind().dialect.name == "postgresql":
        found = values.subquery()
        middle: ColumnElement[float] = func.percentile_cont(0.5).within_group(found.c.value)
    else:  # SQLite has no such function: the mean of the one or two values whose rank is in the middle
        part: tuple[Any, ...] = (Sample.series_id, placed.c.place)
        rank = func.row_number(type_=Integer).over(order_by=Sample.value, partition_by=part)
        found = values.add_columns(rank.label("rank"), func.count().over(partition_by=part).label("total")).subquery()
        away = 2 * found.c.rank - found.c.total
        middle = func.avg(case((away.between(0, 2), found.c.value)))
    query = (
        select(
            found.c.series_id,
            found.c.place,
            func.min(found.c.value),
            middle,
            func.max(found.c.value),
            func.max(found.c.report_id),
        )
        .group_by(found.c.series_id, found.c.place)
        .order_by(found.c.place)
    )
    return [Bucket(*row) for row in session.execute(query)]


def commits_of_reports(session: Session, report_ids: Iterable[int]) -> dict[int, tuple[Commit, int]]:
    """The head commit and the job of each report."""
    query = (
        select(Report.id, Commit, Job.id)
        .join(Job, Job.id == Report.job_id)
        .join(Commit, and_(Commit.project_id == Job.project_id, Commit.sha == Job.head_sha))
        .where(among(session, Report.id, report_ids))
    )
    return {row[0]: (row[1], row[2]) for row in session.execute(query)}


def failed_findings(session: Session, job_ids: Iterable[int]) -> list[tuple[int, str, str, str]]:
    """Job, backend, case and limit key of the findings that failed."""
    some = Verdict.failed != type_coerce([], Verdict.failed.type)
    query = select(Verdict.job_id, Verdict.failed).where(among(session, Verdict.job_id, job_ids), some)
    return [(job_id, *finding) for job_id, failed in session.execute(query) for finding in failed]


def newest_input_values(session: Session, cases: Iterable[str], metrics: Iterable[str]) -> list[ValueRow]:
    """The newest sample of every series of the input sets with one of the metrics, over all projects."""
    one = aliased(Sample)
    newest = (
        select(one.id)
        .where(one.series_id == Series.id, one.revision != "base")
        .order_by(one.report_id.desc())
        .limit(1)
        .correlate(Series)
        .scalar_subquery()
    )
    ids = select(newest).where(Series.case.in_(list(cases)), Series.metric.in_(list(metrics)))
    return _values(
        session, among(session, Sample.id, [number for number in session.scalars(ids) if number is not None])
    )


def _sessions(project_id: int, ref: str | None, between: Span | None = None) -> Select[int]:
    """Accepted reports of a project, of pushes to `ref` (None: of anything), of a span alone."""
    query = (
        select(Report.id)
        .join(Job, Job.id == Report.job_id)
        .where(Report.accepted.is_(True), Job.project_id == project_id)
    )
    if between is not None:
        query = query.where(Report.id.between(between.first, between.last))
    return query if ref is None else query.where(Job.ref == ref, Job.pull_request_id.is_(None))
