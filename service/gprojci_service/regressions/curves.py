"""The series of a project's default branch as curves over its commits, ready to be looked at for steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy.orm import Session

from gprojci_service.models import Commit, Project, Series
from gprojci_service.projects.ancestry import in_order
from gprojci_service.regressions import repository
from gprojci_service.regressions.repository import Measured
from gprojci_service.regressions.steps import FIRST, Point, Step, find_steps

REPORTS = 400
"""How many reports of the default branch are looked back at."""
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
    """Whether steps of a series mean anything: errors, and times as ratios to the anchor. Bare seconds move with the
    machine, and what they say of the kernel their ratio says too."""
    return series.unit == "fraction" or series.metric.endswith("_ratio_anchor")


def branch(session: Session, project: Project) -> Branch:
    """What was measured of a project's default branch.

    Of each session only the value of the head counts. A base is measured in the session of its child, so with it
    neighbours would share their noise. Peers and the anchor are no work of the commit's: their steps open nothing.
    """
    commits, found = _measured(session, project, ("head",), None)
    judged = sum(len(curve.points) > FIRST for curve in found)
    return Branch(commits, tuple((curve, tuple(find_steps(curve.points, series=judged))) for curve in found))


def of_series(session: Session, project: Project, series_ids: Sequence[int]) -> list[tuple[Curve, tuple[Step, ...]]]:
    """Some series of the default branch with their steps, peers too, for information."""
    _, found = _measured(session, project, ("head", "ruler"), series_ids)
    all_of_them = repository.count_watched(session, project.id)
    return [(curve, tuple(find_steps(curve.points, series=all_of_them))) for curve in found]


def _measured(
    session: Session, project: Project, revisions: Sequence[str], series_ids: Sequence[int] | None
) -> tuple[tuple[Commit, ...], list[Curve]]:
    values: dict[int, dict[int, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    reports = repository.measured_reports(session, project, REPORTS)
    for value in repository.measured_values(session, reports, revisions, series_ids):
        values[value.series_id][value.commit_id].append(value)
    commits = in_order(repository.commits(session, {commit for at in values.values() for commit in at}))
    return tuple(commits), [
        _curve(series, [commit for commit in commits if commit.id in values[series.id]], values[series.id])
        for series in repository.series(session, values)
        if watched(series)
    ]


def _curve(series: Series, commits: list[Commit], values: dict[int, list[Measured]]) -> Curve:
    return Curve(
        series,
        tuple(commits),
        tuple(values[commit.id][-1].job_id for commit in commits),
        tuple(_point(values[commit.id]) for commit in commits),
    )


def _point(measured: list[Measured]) -> Point:
    """A commit that was measured more than once counts with the median."""
    if len(measured) == 1 and measured[0].low is None:
        return Point(math.log(max(measured[0].value, _NO_ERROR)))
    spreads = [
        math.log(value.high / value.low) / _INTERVAL_TO_SIGMA
        for value in measured
        if value.low is not None and value.high is not None and 0 < value.low <= value.high
    ]
    return Point(
        median(math.log(max(value.value, _NO_ERROR)) for value in measured),
        median(spreads) / math.sqrt(len(measured)) if spreads else 0.0,
    )
