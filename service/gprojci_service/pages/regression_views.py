"""What the templates of regressions are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gprojci_service.models import Bisection, Commit, Project, Regression, RegressionEvent
from gprojci_service.pages.schemas import Drawing


@dataclass(frozen=True)
class RegressionRow:
    """A regression in the list; `amount` is its largest change."""

    regression: Regression
    project: Project
    first_bad: Commit
    title: str
    amount: str
    count: int
    hardware: str


@dataclass(frozen=True)
class RegressionsView:
    """The list of regressions; `address` makes the address of another choice."""

    rows: tuple[RegressionRow, ...]
    state: str
    states: tuple[tuple[str, str], ...]
    project: str
    projects: tuple[str, ...]
    project_words: dict[str, str]
    sort: str
    sorts: tuple[str, ...]
    sort_words: dict[str, str]
    address: Callable[..., str]
    newer: str | None
    older: str | None


@dataclass(frozen=True)
class RegressionSeriesView:
    """A series of a regression, with the address that draws it."""

    id: int
    name: str
    where: str
    before: str
    after: str
    amount: str
    noise: str
    limit: str
    recovered_by_sha: str | None
    address: str


@dataclass(frozen=True)
class RegressionView:
    """A regression's page; `chosen` is the series that is drawn."""

    regression: Regression
    project: Project
    title: str
    last_good: Commit | None
    first_bad: Commit
    compare: str | None
    series: tuple[RegressionSeriesView, ...]
    chosen: int
    drawing: Drawing | None
    log_command: str
    measure_command: str
    bisect_command: str | None
    """None where no good commit is known, or nothing that can be searched for."""
    bisections: tuple[Bisection, ...]
    """Those between the same commits, newest first."""
    triage_command: str
    events: tuple[RegressionEvent, ...]
    ways: tuple[str, ...]
    """States that may follow."""
