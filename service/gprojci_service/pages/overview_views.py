"""What the template of the overview is given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gprojci_service.models import Project
from gprojci_service.pages.repository import JobRow
from gprojci_service.pages.schemas import FindingView, Scatter, WorkerView


@dataclass(frozen=True)
class GateLine:
    """A decided or running job on a project's card, with the reasons where it did not pass."""

    row: JobRow
    reasons: tuple[FindingView, ...]


@dataclass(frozen=True)
class Moved:
    """A value that became worse, in words."""

    name: str
    before: str
    after: str
    times: str


@dataclass(frozen=True)
class SinceGreen:
    """The default branch from its last green commit to where it stands now, on the hardware of its newest verdict."""

    green: JobRow
    broke: JobRow
    """The first that did not pass."""
    commits: int
    """Judged commits after the green one."""
    moved: tuple[Moved, ...]
    """What became worse since by more than 5%, the worst first; of the newest verdict's report."""
    compare: str


@dataclass(frozen=True)
class ProjectCard:
    """A project on the overview: its default branch first, then its open pull requests."""

    project: Project
    gates: tuple[GateLine, ...]
    since: SinceGreen | None
    """What changed since the last green commit, where the default branch does not pass."""
    regressions: int
    """How many are open."""


@dataclass(frozen=True)
class OverviewView:
    """The overview."""

    cards: tuple[ProjectCard, ...]
    """What does not pass first."""
    quiet: tuple[Project, ...]
    """Projects of which nothing was judged or waits."""
    scatter: Scatter | None
    queue: tuple[tuple[str, int], ...]
    oldest_waiting: datetime | None
    workers: tuple[WorkerView, ...]
    recent: tuple[JobRow, ...]
    public_url: str
    worker_words: str
