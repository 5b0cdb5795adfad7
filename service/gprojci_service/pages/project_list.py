"""Assembles the list of projects: where each default branch stands, filtered, sorted and paged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from gprojci_service.models import Project
from gprojci_service.pages import repository
from gprojci_service.pages.addresses import address
from gprojci_service.pages.repository import JobRow
from gprojci_service.pages.scatter import pick

PAGE = 50
STATES = {"": "all", "fail": "failing", "pass": "passing", "none": "not judged yet", "archived": "archived"}
SORTS = {"name": "by name", "newest": "newest verdict first", "regressions": "most open regressions first"}
_DEFAULT = {"sort": "name"}
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ProjectRow:
    """A project, the newest decided job of its default branch, and how much waits for somebody."""

    project: Project
    newest: JobRow | None
    pull_requests: int
    regressions: int

    @property
    def state(self) -> str:
        """A key of `STATES`."""
        if self.project.archived_at is not None:
            return "archived"
        verdict = self.newest.verdict if self.newest else None
        return "none" if verdict is None else "pass" if verdict.verdict == "pass" else "fail"


@dataclass(frozen=True)
class ProjectsView:
    """The list; `address` makes the address of another choice."""

    rows: tuple[ProjectRow, ...]
    state: str
    states: tuple[tuple[str, str, int], ...]
    text: str
    sort: str
    address: Callable[..., str]
    newer: str | None
    older: str | None


def projects(session: Session, choices: Mapping[str, str], page: int) -> ProjectsView:
    """The list, by what the address chooses: state, q (part of a name) and sort."""
    state, sort = pick(choices.get("state"), list(STATES)), pick(choices.get("sort"), list(SORTS))
    text = choices.get("q", "").strip().lower()[:100]
    rows = [row for row in _rows(session) if text in row.project.name.lower()]
    counts = {key: sum(row.state == key for row in rows) for key in STATES}
    counts[""] = len(rows) - counts["archived"]
    shown = [row for row in rows if row.state == state or (not state and row.state != "archived")]
    if sort == "newest":
        shown.sort(key=lambda row: _decided(row), reverse=True)
    elif sort == "regressions":
        shown.sort(key=lambda row: -row.regressions)
    chosen = {"state": state, "q": text, "sort": sort}
    return ProjectsView(
        rows=tuple(shown[(page - 1) * PAGE : page * PAGE]),
        state=state,
        states=tuple((key, words, counts[key]) for key, words in STATES.items()),
        text=text,
        sort=sort,
        address=lambda **other: address("/projects", chosen | other, default=_DEFAULT),
        newer=address("/projects", chosen, page - 1, default=_DEFAULT) if page > 1 else None,
        older=address("/projects", chosen, page + 1, default=_DEFAULT) if len(shown) > page * PAGE else None,
    )


def _rows(session: Session) -> list[ProjectRow]:
    found = repository.all_projects(session)
    ids = [project.id for project in found]
    branch = repository.newest_decided_on_default_branch(session, ids)
    pulls, regressions = repository.open_pull_requests(session, ids), repository.open_regressions(session, ids)
    return [
        ProjectRow(project, branch.get(project.id), pulls.get(project.id, 0), regressions.get(project.id, 0))
        for project in found
    ]


def _decided(row: ProjectRow) -> datetime:
    return row.newest.verdict.decided_at if row.newest and row.newest.verdict else _LONG_AGO
