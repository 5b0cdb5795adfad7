"""Assembles the list of jobs: filtered, sorted, paged; the queue in the order in which workers claim it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gprojci_service.models.job import JOB_STATES
from gprojci_service.pages import jobs_repository, repository
from gprojci_service.pages.addresses import address
from gprojci_service.pages.jobs_repository import JobFilter
from gprojci_service.pages.repository import JobRow
from gprojci_service.pages.scatter import pick

PAGE = 50
QUEUE = 200
"""Queued jobs that are shown in the order of claiming; a longer queue is shown by age."""
STATES = (
    ("", "all"),
    ("queued", "queued"),
    ("running", "running"),
    ("awaiting_approval", "awaiting approval"),
    ("draft", "draft"),
    ("pass", "pass"),
    ("fail", "fail"),
    ("neutral", "cannot tell"),
    ("error", "error"),
    ("cancelled", "cancelled"),
)
KINDS = {
    "": "anything",
    "push": "a push",
    "pull_request": "a pull request",
    "merge_group": "the merge queue",
    "manual": "hand",
    "baseline": "a comment on a baseline",
    "bisect": "a bisection",
    "backfill": "a backfill",
    "schedule": "a schedule",
}
SORTS = {"newest": "newest first", "oldest": "oldest first", "claimed": "next to be measured first"}
_DEFAULT = {"sort": "newest"}


@dataclass(frozen=True)
class JobsView:
    """The list of jobs; `address` makes the address of another choice."""

    rows: tuple[JobRow, ...]
    state: str
    states: tuple[tuple[str, str, int], ...]
    project: str
    projects: dict[str, str]
    """Names, each as it reads."""
    hardware: str
    hardwares: dict[str, str]
    kind: str
    kinds: tuple[str, ...]
    kind_words: dict[str, str]
    text: str
    sort: str
    sorts: tuple[str, ...]
    sort_words: dict[str, str]
    narrowed: bool
    """Whether anything but the state is chosen."""
    address: Callable[..., str]
    older: str | None
    """Address of the rest of the list."""


def jobs(session: Session, choices: Mapping[str, str], before: int | None, after: int | None) -> JobsView:
    """The list, by what the address chooses: state, project, hardware, kind, q (text) and sort."""
    state = pick(choices.get("state"), [key for key, _ in STATES])
    projects = ["", *(project.name for project in repository.projects(session))]
    hardwares = ["", *jobs_repository.job_hardware(session)]
    kinds = list(KINDS)
    sorts = [key for key in SORTS if key != "claimed" or state == "queued"]
    chosen = {
        "state": state,
        "project": pick(choices.get("project"), projects),
        "hardware": pick(choices.get("hardware"), hardwares),
        "kind": pick(choices.get("kind"), kinds),
        "q": choices.get("q", "").strip()[:100],
        "sort": pick(choices.get("sort"), sorts, "claimed"),
    }
    wanted = JobFilter(
        project=chosen["project"],
        state=state,
        hardware=chosen["hardware"],
        kind=chosen["kind"],
        text=chosen["q"],
    )
    rows, onward = _rows(session, wanted, chosen["sort"], before, after)
    counts = repository.job_counts(session)
    total = sum(counts.get(key, 0) for key in JOB_STATES)
    return JobsView(
        rows=tuple(rows),
        state=state,
        states=tuple((key, name, counts.get(key, 0) if key else total) for key, name in STATES),
        project=chosen["project"],
        projects={"": "all projects"} | {name: name for name in projects if name},
        hardware=chosen["hardware"],
        hardwares={"": "all classes"} | {name: name for name in hardwares if name},
        kind=chosen["kind"],
        kinds=tuple(kinds),
        kind_words=KINDS,
        text=chosen["q"],
        sort=chosen["sort"],
        sorts=tuple(sorts),
        sort_words=SORTS,
        narrowed=any(chosen[key] for key in ("project", "hardware", "kind", "q")),
        address=lambda **other: address("/jobs", chosen | other, default=_DEFAULT),
        older=address("/jobs", chosen | onward, default=_DEFAULT) if onward else None,
    )


def _rows(
    session: Session, wanted: JobFilter, sort: str, before: int | None, after: int | None
) -> tuple[list[JobRow], dict[str, str]]:
    """A page of jobs, and what the address of the next one has more; nothing where there is none."""
    if sort == "claimed":
        return jobs_repository.jobs_as_claimed(session, wanted, QUEUE), {}
    if sort == "oldest":
        rows = jobs_repository.jobs_by_age(session, wanted, after=after, limit=PAGE + 1)
    else:
        rows = jobs_repository.job_rows(session, wanted, before=before, limit=PAGE + 1)
    key = "after" if sort == "oldest" else "before"
    return rows[:PAGE], {key: str(rows[PAGE - 1].job.id)} if len(rows) > PAGE else {}
