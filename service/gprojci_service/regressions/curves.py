"""The series of a project's default branch as curves over its commits, ready to be looked at for steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy.orm import Session

from gprojci_service.models import Commit, Project, Series, SeriesStep
from gprojci_service.projects.ancestry import in_order
from gprojci_service.regressions import repository
from gprojci_service.regressions.repository import Measured
from gprojci_service.regressions.steps import FIRST, Point, Step, find_steps

REPORTS = 400
"""How many reports of the default branch are looked back at."""
AT_ONCE = 100
"""Series whose values are in memory at a time, where only their steps are wanted."""
_NO_ERROR = 1e-9  # an error of exactly zero has no logarithm
_INTERVAL_TO_SIGMA = 2 * 1.96  # of a 95% interval


@dataclass(frozen=True)
class Curve:
    """One series over the commits that were measured, oldest first.

    Attributes:
        series: what was measured.
        commits: where.
        jobs: the newest job of each commit.
        points: the logarithms of the values.
    """

    series: Series
    commits: tuple[Commit, ...]
    jobs: tuple[int, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Branch:
    """A default branch as it was measured: its commits in order, and its curves with their steps."""

    commits: tuple[Commit, ...]
    curves: tuple[tuple[Curve, tuple[Step, ...]], ...]

    def rank(self) -> dict[int, int]:
        """Place of each commit by its number, the oldest first."""
        return {commit.id: place for place, commit in enumerate(self.commits)}


def watched(series: Series) -> bool:
    """Whether steps of a series mean anything: errors, memory, and times as ratios to the anchor. Bare seconds move
    with the machine, and what they say of the kernel their ratio says too."""
    return series.unit in ("fraction", "bytes") or series.metric.endswith("_ratio_anchor")


def branch(session: Session, project: Project) -> Branch:
    """What was measured of a project's default branch.

    Of each session only the value of the head counts. A base is measured in the session of its child, so with it
    neighbours would share their noise. Peers and the anchor are no work of the commit's: their steps open nothing.
    """
    commits, found = _measured(session, repository.measured_reports(session, project, REPORTS), ("head",), None)
    judged = sum(len(curve.points) > FIRST for curve in found)
    return Branch(commits, tuple((curve, tuple(find_steps(curve.points, series=judged))) for curve in found))


def steps(session: Session, project: Project) -> list[SeriesStep]:
    """The steps of every series of the default branch that is looked at, peers too, for information."""
    reports = repository.measured_reports(session, project, REPORTS)
    series_ids = repository.watched_series(session, project.id)
    parts = (series_ids[start : start + AT_ONCE] for start in range(0, len(series_ids), AT_ONCE))
    return [
        SeriesStep(series_id=curve.series.id, commit_id=curve.commits[step.index].id, change=step.change)
        for part in parts
        for curve in _measured(session, reports, ("head", "ruler"), part)[1]
        for step in find_steps(curve.points, series=len(series_ids))
    ]


def _measured(
    session: Session, reports: Sequence[int], revisions: Sequence[str], series_ids: Sequence[int] | None
) -> tuple[tuple[Commit, ...], list[Curve]]:
    values: dict[int, dict[int, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for value in repository.measured_values(session, reports, revisions, series_ids):
        values[value.series_id][value.commit_id].append(value)
    commits = tuple(in_order(repository.commits(session, {commit for at in values.values() for commit in at})))
    places = [(place, commit.id) for place, commit in enumerate(commits)]
    return commits, [
        _curve(series, commits, [(place, at[number]) for place, number in places if number in at])
        for series in repository.series(session, values)
        if watched(series)
        for at in (values[series.id],)
    ]


def _curve(series: Series, commits: Sequence[Commit], measured: Sequence[tuple[int, list[Measured]]]) -> Curve:
    """A curve of what was measured at commits by their place."""
    return Curve(
        series,
        tuple(commits[place] for place, _ in measured),
        tuple(values[-1].job_id for _, values in measured),
        tuple(_point(values) for _, values in measured),
    )


def _point(measured: Sequence[Measured]) -> Point:
    """A commit that was measured more than once counts with the median."""
    if len(measured) == 1:
        return Point(math.log(max(measured[0].value, _NO_ERROR)), _spread(measured[0]) or 0.0)
    spreads = [spread for spread in map(_spread, measured) if spread is not None]
    return Point(
        median(math.log(max(value.value, _NO_ERROR)) for value in measured),
        median(spreads) / math.sqrt(len(measured)) if spreads else 0.0,
    )


def _spread(measured: Measured) -> float | None:
    """Standard deviation of the logarithm, as the session's interval has it; None without one."""
    low, high = measured.low, measured.high
    return None if low is None or high is None or not 0 < low <= high else math.log(high / low) / _INTERVAL_TO_SIGMA
