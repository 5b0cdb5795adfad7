"""Tasks: process a stored webhook; find what lost webhooks were about."""

from __future__ import annotations

import logging

from gprojci_service.context import Context
from gprojci_service.github.client import Recorder
from gprojci_service.github.rest import Failure
from gprojci_service.models import Project
from gprojci_service.projects import repository as project_repository
from gprojci_service.webhooks import reconcile as lost
from gprojci_service.webhooks import service

logger = logging.getLogger(__name__)


def process_delivery(context: Context, *row_ids: int) -> None:
    """Does what each of the stored deliveries asks for, in this order; one that fails keeps none of the others."""
    failed: list[Exception] = []
    for row_id in row_ids:
        try:
            with context.database.session(writes=True) as session:
                service.process(session, context.settings, row_id)
        except Exception as error:  # noqa: BLE001 (raised once the others are done)
            failed.append(error)
    if failed:
        raise failed[0] if len(failed) == 1 else ExceptionGroup("deliveries failed", failed)


def reconcile(context: Context) -> None:
    """Compares every repository with its jobs; one that GitHub does not answer about is left to the next time."""
    if isinstance(context.github, Recorder):
        return
    with context.database.session(writes=False) as session:
        on_github = [project for project in project_repository.all_projects(session) if project.github_id is not None]
        known_open = {
            project.id: [known.number for known in project_repository.open_pull_requests(session, project.id)]
            for project in on_github
        }
    for project in on_github:
        try:
            seen = lost.look(context.github, project.name, project.default_branch, known_open[project.id])
        except Failure as failure:
            logger.warning("project %s is not compared with GitHub: %s", project.name, failure)
            continue
        with context.database.session(writes=True) as session:
            present = session.get_one(Project, project.id)
            if present.archived_at is None:
                lost.catch_up(session, context.settings, present, seen)
