"""What the templates of bisections are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gprojci_service.models import Bisection, Commit, Project
from gprojci_service.pages.schemas import Drawing


@dataclass(frozen=True)
class BisectionRow:
    """A search in the list; `found` says what it found or how far it is."""

    bisection: Bisection
    project: Project
    title: str
    found: str


@dataclass(frozen=True)
class BisectionsView:
    """The list of searches; `address` makes the address of another choice."""

    rows: tuple[BisectionRow, ...]
    state: str
    states: tuple[tuple[str, str], ...]
    project: str
    projects: tuple[str, ...]
    project_words: dict[str, str]
    address: Callable[..., str]
    newer: str | None
    older: str | None


@dataclass(frozen=True)
class MeasuredRow:
    """One measurement of a search, in words."""

    order: int
    sha: str
    message: str
    place: str
    word: str
    ratio: str
    interval: str
    effort: int
    job_id: int | None
    reused: bool
    reason: str


@dataclass(frozen=True)
class BisectionView:
    """A search with its evidence."""

    bisection: Bisection
    project: Project
    title: str
    banner: tuple[str, str]
    """Kind of the verdict bar and what it says."""
    first_bad: str | None
    first_bad_commit: Commit | None
    amount: str
    """How much worse the first bad commit is, where that is known."""
    compare: str | None
    remaining: tuple[str, ...]
    remaining_count: int
    searched: int
    rows: tuple[MeasuredRow, ...]
    drawing: Drawing | None
    measure_command: str | None
    again_command: str
    regressions: tuple[int, ...]
    """Regressions whose range this search was about."""
