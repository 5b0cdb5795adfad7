"""Every query about regressions, and about the curves that they are found on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.database import among
from gprojci_service.models import (
    Commit,
    Job,
    Project,
    Regression,
    RegressionEvent,
    RegressionSeries,
    Report,
    Sample,
    Series,
    SeriesStep,
)
from gprojci_service.models.regression import OPEN_REGRESSION_STATES
from gprojci_service.results.repository import along_curves


class Measured(NamedTuple):
    """One value that a default branch's commit was measured to have."""

    series_id: int
    commit_id: int
    job_id: int
    value: float
    low: float | None
    high: float | None


def by_id(session: Session, regression_id: int) -> Regression | None:
    return session.get(Regression, regression_id)


def locked(session: Session, regression_id: int) -> Regression | None:
    return session.scalar(
        select(Regression)
        .where(Regression.id == regression_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def locked_project(session: Session, project_id: int) -> Project | None:
    """The project, locked: its curves are looked at by one task at a time."""
    return session.scalar(select(Project).where(Project.id == project_id).with_for_update())


def search(
    session: Session,
    *,
    project: str | None = None,
    states: Iterable[str] = (),
    owner: str | None = None,
    before: int | None = None,
    limit: int,
) -> Sequence[Regression]:
    """Regressions, newest first; `before` is an id to page on from."""
    query = select(Regression).order_by(Regression.id.desc()).limit(limit)
    if project:
        query = query.join(Project, Project.id == Regression.project_id).where(Project.name == project)
    if states := tuple(states):
        query = query.where(Regression.state.in_(states))
    if owner:
        query = query.where(Regression.owner == owner)
    if before is not None:
        query = query.where(Regression.id < before)
    return session.scalars(query).all()


def open_of_project(session: Session, project_id: int) -> Sequence[Regression]:
    """Regressions that are not fixed, ignored ones too, oldest first."""
    states = (*OPEN_REGRESSION_STATES, "ignored")
    return session.scalars(
        select(Regression)
        .where(Regression.project_id == project_id, Regression.state.in_(states))
        .order_by(Regression.id)
    ).all()


def entries_of(session: Session, regression_id: int) -> Sequence[RegressionSeries]:
    return session.scalars(
        select(RegressionSeries).where(RegressionSeries.regression_id == regression_id).order_by(RegressionSeries.id)
    ).all()


def entries_of_project(session: Session, project_id: int) -> Sequence[RegressionSeries]:
    return session.scalars(
        select(RegressionSeries)
        .join(Regression, Regression.id == RegressionSeries.regression_id)
        .where(Regression.project_id == project_id)
        .order_by(RegressionSeries.id)
    ).all()


def entries_of_series(
    session: Session, series_ids: Iterable[int]
) -> dict[int, list[tuple[RegressionSeries, Regression]]]:
    """What regressions show in these series, oldest first, by the series' number."""
    rows = session.execute(
        select(RegressionSeries, Regression)
        .join(Regression, Regression.id == RegressionSeries.regression_id)
        .where(RegressionSeries.series_id.in_(list(series_ids)))
        .order_by(RegressionSeries.id)
    )
    found: dict[int, list[tuple[RegressionSeries, Regression]]] = defaultdict(list)
    for entry, regression in rows:
        found[entry.series_id].append((entry, regression))
    return found


def series_of(session: Session, regression_id: int) -> list[tuple[RegressionSeries, Series]]:
    """The series of a regression: those that have not recovered first, of them the largest change where it is known."""
    return series_of_all(session, [regression_id]).get(regression_id, [])


def series_of_all(session: Session, regression_ids: Iterable[int]) -> dict[int, list[tuple[RegressionSeries, Series]]]:
    """The series of several regressions, in the same order, by the regression's number."""
    rows = session.execute(
        select(RegressionSeries, Series)
        .join(Series, Series.id == RegressionSeries.series_id)
        .where(RegressionSeries.regression_id.in_(list(regression_ids)))
        .order_by(RegressionSeries.id)
    )
    found: dict[int, list[tuple[RegressionSeries, Series]]] = {}
    for entry, series in rows:
        found.setdefault(entry.regression_id, []).append((entry, series))
    for shown in found.values():
        shown.sort(
            key=lambda row: (
                row[0].recovered_by_sha is not None,
                -(row[0].after / row[0].before) if row[0].before else 0.0,
            )
        )
    return found


def events_of(session: Session, regression_id: int) -> Sequence[RegressionEvent]:
    return session.scalars(
        select(RegressionEvent).where(RegressionEvent.regression_id == regression_id).order_by(RegressionEvent.id)
    ).all()


def commit(session: Session, commit_id: int | None) -> Commit | None:
    return None if commit_id is None else session.get(Commit, commit_id)


def measured_reports(session: Session, project: Project, limit: int) -> list[int]:
    """The newest reports about commits of the default branch, not of pull requests or the merge queue."""
    query = (
        select(Report.id)
        .join(Job, Job.id == Report.job_id)
        .where(
            Report.accepted.is_(True),
            Job.project_id == project.id,
            Job.ref == project.default_branch,
            Job.pull_request_id.is_(None),
            Job.kind != "merge_group",
        )
        .order_by(Report.id.desc())
        .limit(limit)
    )
    return list(session.scalars(query))


def measured_values(
    session: Session, report_ids: Sequence[int], revisions: Sequence[str], series_ids: Sequence[int] | None = None
) -> list[Measured]:
    """What those reports measured of `revisions`, of some series or of all, in the order in which they came."""
    if not report_ids:
        return []
    query = (
        select(Sample.series_id, Sample.commit_id, Report.job_id, Sample.value, Sample.low, Sample.high)
        .join(Report, Report.id == Sample.report_id)
        .where(Sample.revision.in_(revisions))
        .order_by(Sample.id)
    )
    if series_ids is None:
        query = query.where(among(session, Sample.report_id, report_ids))
    else:
        query = query.where(among(session, Sample.series_id, series_ids), along_curves(session, report_ids))
    return [Measured(*row) for row in session.execute(query)]


def commits(session: Session, ids: Iterable[int]) -> Sequence[Commit]:
    return session.scalars(select(Commit).where(among(session, Commit.id, ids))).all()


def series(session: Session, ids: Iterable[int]) -> Sequence[Series]:
    return session.scalars(select(Series).where(among(session, Series.id, ids)).order_by(Series.id)).all()


_WATCHED = Series.unit.in_(("fraction", "bytes")) | Series.metric.endswith("_ratio_anchor", autoescape=True)


def watched_series(session: Session, project_id: int) -> list[int]:
    """The series of a project that are looked at for steps, as `curves.watched` has it."""
    return list(session.scalars(select(Series.id).where(Series.project_id == project_id, _WATCHED).order_by(Series.id)))


def steps_of_project(session: Session, project_id: int) -> list[SeriesStep]:
    query = select(SeriesStep).join(Series, Series.id == SeriesStep.series_id).where(Series.project_id == project_id)
    return list(session.scalars(query))


def steps_of_series(session: Session, series_ids: Iterable[int]) -> list[SeriesStep]:
    return list(session.scalars(select(SeriesStep).where(among(session, SeriesStep.series_id, series_ids))))
