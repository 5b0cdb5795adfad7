"""Every query about reports, series, samples, builds and logs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import Attempt, Build, Commit, LogChunk, Report, Sample, Series


def of_attempt(session: Session, attempt_id: int) -> Report | None:
    return session.scalar(select(Report).where(Report.attempt_id == attempt_id))


def accepted_of_job(session: Session, job_id: int) -> Report | None:
    return session.scalar(select(Report).where(Report.job_id == job_id, Report.accepted.is_(True)))


def builds_of_job(session: Session, job_id: int) -> Sequence[Build]:
    return session.scalars(
        select(Build).join(Attempt, Attempt.id == Build.attempt_id).where(Attempt.job_id == job_id).order_by(Build.id)
    ).all()


def log_of_job(session: Session, job_id: int) -> str:
    return "".join(
        session.scalars(
            select(LogChunk.text)
            .join(Attempt, Attempt.id == LogChunk.attempt_id)
            .where(Attempt.job_id == job_id)
            .order_by(Attempt.number, LogChunk.sequence)
        )
    )


def series_by_key(
    session: Session, project_id: int, hardware: str, ruler_revision: str
) -> dict[tuple[str, str, str], Series]:
    """The project's series on a hardware class under a ruler, by (backend, case, metric)."""
    query = select(Series).where(
        Series.project_id == project_id, Series.hardware == hardware, Series.ruler_revision == ruler_revision
    )
    return {(series.backend, series.case, series.metric): series for series in session.scalars(query)}


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
        .order_by(Sample.id.desc())
        .limit(limit)
    )
    return [(row[0], row[1]) for row in rows]


def has_samples(session: Session, report_id: int) -> bool:
    return session.scalar(select(Sample.id).where(Sample.report_id == report_id).limit(1)) is not None
