"""Assembles what the overview and the project page show."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from gprojci_service.errors import ProjectNotFound
from gprojci_service.models import Project
from gprojci_service.models.job import OPEN_STATES
from gprojci_service.pages import findings, jobs_repository, repository, worker_list
from gprojci_service.pages.addresses import address
from gprojci_service.pages.overview_views import GateLine, OverviewView, ProjectCard
from gprojci_service.pages.repository import JobRow
from gprojci_service.pages.scatter import pick, scatter
from gprojci_service.pages.schemas import ProjectView
from gprojci_service.pages.since_green import since_green
from gprojci_service.settings import Settings

PAGE = 50


def project_named(session: Session, owner: str, name: str) -> Project:
    """The project `owner/name`.

    Raises:
        ProjectNotFound: there is none.
    """
    project = repository.project_by_name(session, f"{owner}/{name}")
    if project is None:
        raise ProjectNotFound(f"no project is called {owner}/{name}; a project appears with its first webhook")
    return project


def overview(session: Session, settings: Settings, choices: Mapping[str, str]) -> OverviewView:
    """The overview; `choices` come from the address."""
    projects = repository.projects(session)
    ids = [project.id for project in projects]
    branch = repository.newest_decided_on_default_branch(session, ids)
    pulls = repository.newest_job_of_open_pull_requests(session, ids)
    waiting = {row.project.id for row in pulls}

    def standing(project: Project) -> int:
        verdict = branch[project.id].verdict if project.id in branch else None
        if verdict is not None:
            return 0 if verdict.verdict != "pass" else 1
        return 1 if project.id in branch or project.id in waiting else 2

    projects.sort(key=standing)
    counts = repository.job_counts(session)
    workers = worker_list.all_workers(session, settings)
    names = [project.name for project in projects]
    chosen = pick(choices.get("project"), names)
    drawn = None
    for project in sorted(projects, key=lambda project: project.name != chosen):
        if drawn is None and (project.name == chosen or not choices.get("project")):
            drawn = scatter(session, project, choices, names)
    cards = _cards(session, projects, branch, pulls)
    present = sum(worker.state != "away" for worker in workers)
    return OverviewView(
        cards=tuple(card for card in cards if card.gates or card.regressions),
        quiet=tuple(card.project for card in cards if not (card.gates or card.regressions)),
        scatter=drawn,
        queue=tuple(
            (state, counts.get(state, 0))
            for state in OPEN_STATES
            if state in ("queued", "running") or counts.get(state)
        ),
        oldest_waiting=repository.oldest_waiting(session),
        workers=workers[:8],
        recent=tuple(jobs_repository.job_rows(session, limit=8)),
        public_url=settings.public_url,
        worker_words=f"{present} of them {'is' if present == 1 else 'are'} here now" if workers else "none is here yet",
    )


def _cards(
    session: Session, projects: list[Project], branch: dict[int, JobRow], pulls: list[JobRow]
) -> tuple[ProjectCard, ...]:
    shown: dict[int, list[JobRow]] = {}
    for project in projects:
        newest = [branch[project.id]] if project.id in branch else []
        shown[project.id] = newest + [row for row in pulls if row.project.id == project.id][:4]
    wrong = {row.verdict.id for rows in shown.values() for row in rows if row.verdict and row.verdict.verdict != "pass"}
    whole = repository.evidence_of(session, wrong) if wrong else {}

    def line(row: JobRow) -> GateLine:
        verdict = whole.get(row.verdict.id) if row.verdict else None
        return GateLine(row, findings.reasons(verdict, at_most=2))

    regressions = repository.open_regressions(session, [project.id for project in projects])
    return tuple(
        ProjectCard(
            project,
            tuple(map(line, shown[project.id])),
            since_green(session, project, branch[project.id]) if project.id in branch else None,
            regressions.get(project.id, 0),
        )
        for project in projects
    )


def project(session: Session, owner: str, name: str, choices: Mapping[str, str], before: int | None) -> ProjectView:
    """A project's page.

    Raises:
        ProjectNotFound: there is none of that name.
    """
    found = project_named(session, owner, name)
    refs = repository.refs(session, found.id)
    ref = pick(choices.get("ref"), ["", *refs])
    chosen = jobs_repository.JobFilter(project_id=found.id, ref=ref)
    rows = jobs_repository.job_rows(session, chosen, before=before, limit=PAGE + 1)
    onward = {"ref": ref, "before": str(rows[PAGE - 1].job.id)} if len(rows) > PAGE else None
    return ProjectView(
        project=found,
        pull_requests=tuple(repository.newest_job_of_open_pull_requests(session, [found.id])),
        jobs=tuple(rows[:PAGE]),
        refs=("", *refs),
        ref=ref,
        ref_words=ref_words(refs),
        scatter=scatter(session, found, choices, [found.name]),
        older=address(f"/projects/{found.name}", onward) if onward else None,
    )


def ref_words(refs: list[str]) -> dict[str, str]:
    """How a choice of branches reads."""
    return {"": "all branches"} | {ref: ref for ref in refs}
