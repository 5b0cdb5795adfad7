"""Task: the schedules that are due."""

from __future__ import annotations

import logging
from urllib.parse import quote

from gprojci_service.context import Context
from gprojci_service.github.client import Recorder
from gprojci_service.github.rest import Failure
from gprojci_service.models import Project, now
from gprojci_service.schedules import repository, service

logger = logging.getLogger(__name__)


def run_schedules(context: Context) -> None:
    """Has the head of each default branch that is due measured."""
    moment = now()
    with context.database.session(writes=False) as session:
        due = [project for _, project in repository.due(session, moment)]
    for project in due:
        head = _head(context, project)  # GitHub is asked outside of any transaction
        with context.database.session(writes=True) as session:
            service.run(session, context.settings, project.id, head, moment)


def _head(context: Context, project: Project) -> str | None:
    """The head of the default branch as GitHub says it; None where it is not asked or does not answer."""
    if isinstance(context.github, Recorder) or project.github_id is None:
        return None
    try:
        branch = context.github.get(f"/repos/{project.name}/branches/{quote(project.default_branch)}")
        return str(branch["commit"]["sha"])
    except (Failure, KeyError, TypeError) as error:
        logger.warning("the head of %s is that of the newest push: GitHub does not say: %s", project.name, error)
        return None
