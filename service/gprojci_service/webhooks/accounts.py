"""What events of repositories and of App installations ask for: a project follows GitHub's number of its repository.

None of them registers a project: the first push or pull request does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.jobs import service as jobs
from gprojci_service.models import Project
from gprojci_service.projects import repository as project_repository
from gprojci_service.projects import service as projects
from gprojci_service.settings import Settings
from gprojci_service.webhooks.schemas import InstallationEvent, RepositoryEvent, RepositoryId


def repository(session: Session, settings: Settings, payload: dict[str, Any]) -> tuple[str, str]:
    """Renamed, transferred, archived, deleted, another default branch, made private or public."""
    event = RepositoryEvent.model_validate(payload)
    project = project_repository.by_github_id(session, event.repository.id)
    if project is None:
        return "ignored", "the repository is no project here"
    if event.action == "deleted":  # its name may be another repository's by now
        return _archive(session, project, "the repository was deleted")
    projects.register(
        session,
        github_id=event.repository.id,
        name=event.repository.full_name,
        clone_url=event.repository.clone_url,
        html_url=event.repository.html_url,
        default_branch=event.repository.default_branch,
        private=event.repository.private,
        installation_id=event.installation.id if event.installation else None,
    )
    if event.action == "archived":
        return _archive(session, project, "the repository was archived")
    if event.action == "unarchived":
        projects.unarchive(project)
        return "processed", f"project {project.name} gets jobs again"
    return "processed", f"project {project.name} is as its repository is now"


def _archive(session: Session, project: Project, reason: str) -> tuple[str, str]:
    projects.archive(project)
    cancelled = jobs.cancel_of_project(session, project.id, reason)
    return "processed", f"project {project.name} archived, {cancelled} job(s) cancelled"


def installation(session: Session, settings: Settings, payload: dict[str, Any]) -> tuple[str, str]:
    """The App was installed, suspended, taken away."""
    event = InstallationEvent.model_validate(payload)
    match event.action:
        case "created" | "new_permissions_accepted":
            return _attach(session, event.installation.id, event.repositories)
        case "suspend" | "deleted":
            theirs = project_repository.of_installation(session, event.installation.id)
            detach = event.action == "deleted"
            return _take_away(session, theirs, f"the App installation: {event.action}", detach=detach)
        case "unsuspend":
            return "processed", "jobs are made again from the next event on"
        case other:
            return "ignored", f"action {other} asks for nothing here"


def installation_repositories(session: Session, settings: Settings, payload: dict[str, Any]) -> tuple[str, str]:
    """The App was given repositories, or they were taken from it."""
    event = InstallationEvent.model_validate(payload)
    if event.action == "added":
        return _attach(session, event.installation.id, event.repositories_added)
    if event.action == "removed":
        removed = {entry.id for entry in event.repositories_removed}
        ours = project_repository.of_installation(session, event.installation.id)
        theirs = [project for project in ours if project.github_id in removed]
        return _take_away(session, theirs, "the repository was taken from the App installation", detach=True)
    return "ignored", f"action {event.action} asks for nothing here"


def _attach(session: Session, installation_id: int, repositories: list[RepositoryId]) -> tuple[str, str]:
    known = project_repository.by_github_ids(session, [entry.id for entry in repositories])
    for project in known:
        project.installation_id = installation_id
    return "processed", f"{len(known)} project(s) of {len(repositories)} repositories belong to the installation"


def _take_away(session: Session, theirs: Iterable[Project], reason: str, *, detach: bool) -> tuple[str, str]:
    """What may no longer be reported about is no longer measured; the projects and their results stay."""
    names, cancelled = [], 0
    for project in theirs:
        names.append(project.name)
        cancelled += jobs.cancel_of_project(session, project.id, reason)
        if detach:
            project.installation_id = None
    return "processed", f"{cancelled} job(s) of {', '.join(names) or 'no project'} cancelled"
