"""Every query about reports, series, samples and logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, insert, select
from sqlalchemy.orm import Session, aliased, defer

from gprojci_service.database import among, is_postgresql
from gprojci_service.models import Attempt, Build, Commit, Job, LogChunk, Report, Sample, Series


def of_attempt(session: Session, attempt_id: int) -> Report | None:
    return session.scalar(select(Report).where(Report.attempt_id == attempt_id))


def accepted_of_job(session: Session, job_id: int) -> Report | None:
    return session.scalar(select(Report).where(Report.job_id == job_id, Report.accepted.is_(True)))


def same_measurement(
    session: Session, project_id: int, hardware: str, fingerprint: str, since: datetime
) -> Report | None:
    """The newest accepted report that was measured, not taken over, with this fingerprint."""
    return session.scalar(
        select(Report)
        .join(Job, Job.id == Report.job_id)
        .where(Report.fingerprint == fingerprint, Report.accepted.is_(True), Report.taken_from_id.is_(None))
        .where(Job.project_id == project_id, Job.hardware == hardware, Report.received_at >= since)
        .order_by(Report.id.desc())
        .limit(1)
    )


def accepted_of_project(session: Session, project_id: int, hardware: str, report_id: int) -> Report | None:
    return session.scalar(
        select(Report)
        .join(Job, Job.id == Report.job_id)
        .where(Report.id == report_id, Report.accepted.is_(True))
        .where(Job.project_id == project_id, Job.hardware == hardware)
    )


def taken_from(session: Session, job_id: int) -> int | None:
    """The job whose measurement a job took over."""
    origin = aliased(Report)
    return session.scalar(
        select(origin.job_id)
        .join(Report, Report.taken_from_id == origin.id)
        .where(Report.job_id == job_id, Report.accepted.is_(True))
    )


def build_keys(session: Session, attempt_id: int) -> dict[str, str]:
    """Keys of an attempt's builds by revision."""
    builds = session.scalars(select(Build).where(Build.attempt_id == attempt_id))
    return {build.revision: build.key for build in builds}


def log_of_job(session: Session, job_id: int, after: int = 0) -> tuple[str, int]:
    """What a job printed after a cursor (0: everything), and the cursor of its end."""
    chunks = session.execute(
        select(LogChunk.text, LogChunk.id)
        .join(Attempt, Attempt.id == LogChunk.attempt_id)
        .where(Attempt.job_id == job_id, LogChunk.id > after)
        .order_by(Attempt.number, LogChunk.sequence)
    ).all()
    return "".join(text for text, _ in chunks), max((number for _, number in chunks), default=after)


SeriesKey = tuple[str, str, str]
"""(backend, case, metric) of a series of a project, on a hardware class under a ruler."""


def series_ids(session: Session, project_id: int, hardware: str, ruler_revision: str) -> dict[SeriesKey, int]:
    """The numbers of the project's series on a hardware class under a ruler."""
    query = select(Series.backend, Series.case, Series.metric, Series.id).where(
        Series.project_id == project_id, Series.hardware == hardware, Series.ruler_revision == ruler_revision
    )
    return {(backend, case, metric): number for backend, case, metric, number in session.execute(query)}


def add_series(session: Session, rows: list[dict[str, Any]]) -> None:
    """Adds series, as rows and not as objects: a report may have tens of thousands."""
    if rows:
        session.execute(insert(Series), rows)


SAMPLE_COLUMNS = ("series_id", "report_id", "commit_id", "revision", "value", "low", "high", "count", "measured_at")


def add_samples(session: Session, rows: Iterable[tuple[Any, ...]]) -> None:
    """Adds samples, each as the values of `SAMPLE_COLUMNS`; PostgreSQL takes them by COPY, a fifth of the time."""
    if not is_postgresql(session):
        session.execute(insert(Sample), [dict(zip(SAMPLE_COLUMNS, row, strict=True)) for row in rows])
        return
    driver = session.connection().connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor, cursor.copy(f"COPY sample ({', '.join(SAMPLE_COLUMNS)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def series_of_project(session: Session, project_id: int) -> Sequence[Series]:
    return session.scalars(
        select(Series).where(Series.project_id == project_id).order_by(Series.backend, Series.metric, Series.case)
    ).all()


def series_by_id(session: Session, series_id: int) -> Series | None:
    return session.get(Series, series_id)


def samples_of_series(session: Session, series_id: int, limit: int) -> Sequence[tuple[Sample, str]]:
    """Samples with the SHA of their commit, newest first."""
    rows = session.execute(
        select(Sample, Commit.sha)
        .join(Commit, Commit.id == Sample.commit_id)
        .where(Sample.series_id == series_id)
        .order_by(Sample.report_id.desc(), Sample.id.desc())
        .limit(limit)
    )
    return [(row[0], row[1]) for row in rows]


@dataclass(frozen=True)
class Choice:
    """Which samples of a project; None is any."""

    metric: str | None = None
    backend: str | None = None
    case: str | None = None
    hardware: str | None = None
    since: datetime | None = None
    """Measured at this moment or later."""


def page_of_samples(
    session: Session, project_id: int, choice: Choice, after: int, limit: int
) -> Sequence[tuple[Sample, Series, str, int]]:
    """Samples of accepted reports, oldest first, with their series, the SHA of their commit and their job's number."""
    query = (
        select(Sample, Series, Commit.sha, Report.job_id)
        .join(Series, Series.id == Sample.series_id)
        .join(Commit, Commit.id == Sample.commit_id)
        .join(Report, Report.id == Sample.report_id)
        .where(Series.project_id == project_id, Sample.id > after, Report.accepted.is_(True))
        .order_by(Sample.id)
        .limit(limit)
    )
    for column, wanted in (
        (Series.metric, choice.metric),
        (Series.backend, choice.backend),
        (Series.case, choice.case),
        (Series.hardware, choice.hardware),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    if choice.since is not None:
        query = query.where(Sample.measured_at >= choice.since)
    return [(row[0], row[1], row[2], row[3]) for row in session.execute(query)]


def along_curves(session: Session, report_ids: Collection[int]) -> ColumnElement[bool]:
    """Whether a sample is of one of many reports, for a query of few series: it reads their curves from the oldest of
    the reports on. The sum keeps the database from reading every sample of each report, of all series."""
    return and_(Sample.report_id >= min(report_ids), among(session, Sample.report_id + 0, report_ids))


def has_samples(session: Session, report_id: int) -> bool:
    return session.scalar(select(Sample.id).where(Sample.report_id == report_id).limit(1)) is not None


def newest_report_of(session: Session, project_id: int, sha: str, base_sha: str | None = None) -> Report | None:
    """The newest accepted report with `sha` as head, and `base_sha` as base where given; without its body."""
    against = () if base_sha is None else (Job.merge_base_sha == base_sha,)
    return _newest_report(session, project_id, Job.head_sha == sha, *against)


def newest_report_with_base(session: Session, project_id: int, sha: str) -> Report | None:
    """The newest accepted report with `sha` as base; without its body."""
    return _newest_report(session, project_id, Job.merge_base_sha == sha)


def _newest_report(session: Session, project_id: int, *of_job: ColumnElement[bool]) -> Report | None:
    query = (
        select(Report)
        .options(defer(Report.body, raiseload=True))
        .join(Job, Job.id == Report.job_id)
        .where(Report.accepted.is_(True), Job.project_id == project_id, *of_job)
        .order_by(Report.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def whole_before(session: Session, moment: datetime, limit: int) -> Sequence[Report]:
    """Reports with all their values that came before a moment, oldest first; locked, without those that another
    transaction holds."""
    query = select(Report).where(Report.thinned_at.is_(None), Report.received_at < moment).order_by(Report.received_at)
    return session.scalars(query.limit(limit).with_for_update(skip_locked=True)).all()


class Ratio(NamedTuple):
    """A time as a ratio to the anchor's in the same session."""

    series_id: int
    metric: str
    backend: str
    case: str
    value: float


def ratios_of_report(session: Session, report_id: int, revision: str) -> list[Ratio]:
    """The ratios to the anchor that a report has of a revision."""
    rows = session.execute(
        select(Series.id, Series.metric, Series.backend, Series.case, Sample.value)
        .join(Sample, Sample.series_id == Series.id)
        .where(Sample.report_id == report_id, Sample.revision == revision, Series.unit == "ratio")
        .order_by(Series.id)
    )
    return [Ratio(*row) for row in rows]
