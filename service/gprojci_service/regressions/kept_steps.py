"""Keeps the steps of every series of a default branch where the pages read them."""

from __future__ import annotations

from gprojci_service.database import Database
from gprojci_service.models import Project, SeriesStep
from gprojci_service.regressions import curves, repository


def keep(database: Database, project_id: int) -> None:
    """Brings the kept steps up to the newest results. What is long about it, the finding, is done before anything is
    written, so that on SQLite nobody waits for it."""
    found = find(database, project_id)
    with database.session(writes=True) as session:
        if repository.locked_project(session, project_id) is None:
            return
        kept = {(step.series_id, step.commit_id): step for step in repository.steps_of_project(session, project_id)}
        for step in found:
            known = kept.pop((step.series_id, step.commit_id), None)
            if known is None:
                session.add(step)
            else:
                known.change = step.change
        for gone in kept.values():
            session.delete(gone)


def find(database: Database, project_id: int) -> list[SeriesStep]:
    """The steps of every series of a project that is looked at."""
    with database.session(writes=False) as session:
        project = session.get(Project, project_id)
        return [] if project is None else curves.steps(session, project)
