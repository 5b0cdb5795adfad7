"""Decisions about projects: registering and renaming them, keeping their commits and pull requests."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.destination import DestinationRefused, check_url
from gprojci_service.errors import Conflict, InvalidRequest, ProjectNotFound
from gprojci_service.models import Commit, Project, PullRequest, now
from gprojci_service.projects import removal, repository
from gprojci_service.projects.schemas import ProjectContents, ProjectCreate


class ProjectExists(Conflict):
    """A project of that name is registered already."""


class ProjectBusy(Conflict):
    """A job of the project is under way."""


def get(session: Session, name: str) -> Project:
    """The project of that full name.

    Raises:
        ProjectNotFound: there is none.
    """
    project = repository.by_name(session, name)
    if project is None:
        raise ProjectNotFound(f"no project {name!r}; a webhook of the repository or `gprojci project add` registers it")
    return project


def create(session: Session, body: ProjectCreate, *, private_network: bool) -> Project:
    """Registers a project by hand. Where its host's name leads, the worker looks, since it is who goes there.

    Raises:
        ProjectExists: the name is taken.
        InvalidRequest: commits may not be fetched from that address.
    """
    if not (private_network and body.clone_url.startswith("file:///")):
        try:
            check_url(
                body.clone_url,
                private=private_network,
                schemes=("https", "ssh"),
                setting="GPROJCI_PRIVATE_REPOSITORIES",
            )
        except DestinationRefused as refused:
            raise InvalidRequest(f"clone_url: {refused}") from refused
    if repository.by_name(session, body.name) is not None:
        raise ProjectExists(f"project {body.name!r} is registered already")
    project = Project(**body.model_dump())
    session.add(project)
    session.flush()
    return project


def register(
    session: Session,
    *,
    github_id: int,
    name: str,
    clone_url: str,
    html_url: str | None,
    default_branch: str,
    private: bool,
    installation_id: int | None,
) -> Project:
    """The project of a repository that a signed webhook describes; made if new, renamed if its name changed.

    A project follows GitHub's number of its repository. Another project of that name, whose repository was renamed or
    deleted without our knowing, gives the name up; one that was registered by hand and has no number yet takes it on.
    """
    project, namesake = repository.by_github_id(session, github_id), repository.by_name(session, name)
    if project is None and namesake is not None and namesake.github_id is None:
        project = namesake
    if namesake is not None and namesake is not project:
        namesake.name = f"{name}@{namesake.id}"
        session.flush()
    if project is None:
        project = Project(name=name)
        session.add(project)
    project.name, project.github_id, project.clone_url, project.html_url = name, github_id, clone_url, html_url
    project.default_branch, project.private = default_branch, private
    project.installation_id = installation_id or project.installation_id
    session.flush()
    return project


def contents(session: Session, name: str) -> ProjectContents:
    """What would be lost with a project.

    Raises:
        ProjectNotFound: there is none.
    """
    project = get(session, name)
    return ProjectContents(project=project.name, rows=removal.counts(session, project))


def remove(session: Session, name: str) -> ProjectContents:
    """Deletes a project with all its results; returns what was lost.

    Raises:
        ProjectNotFound: there is none.
        ProjectBusy: one of its jobs is being measured or decided.
    """
    project = get(session, name)
    busy = repository.busy_job(session, project.id)
    if busy is not None:
        raise ProjectBusy(f"job {busy} of {name} is under way; wait for it, or `gprojci job cancel {busy}`")
    lost = contents(session, name)
    removal.remove(session, project)
    return lost


def archive(project: Project) -> None:
    """Takes a project off the lists and gives it no new jobs; its results stay."""
    project.archived_at = project.archived_at or now()


def unarchive(project: Project) -> None:
    """Undoes `archive`."""
    project.archived_at = None


def record_commit(
    session: Session,
    project_id: int,
    sha: str,
    *,
    message: str | None = None,
    author_name: str | None = None,
    author_email: str | None = None,
    authored_at: datetime | None = None,
    parents: list[str] | None = None,
) -> Commit:
    """The commit's row, made if new; facts that are given fill or replace those known so far."""
    commit = repository.commit(session, project_id, sha)
    if commit is None:
        commit = Commit(project_id=project_id, sha=sha)
        session.add(commit)
    facts: dict[str, Any] = {
        "message": message,
        "author_name": author_name,
        "author_email": author_email,
        "authored_at": authored_at,
        "parents": parents,
    }
    for name, value in facts.items():
        if value is not None:
            setattr(commit, name, value)
    session.flush()
    return commit


def record_pull_request(session: Session, project_id: int, number: int, **facts: Any) -> PullRequest:
    """The pull request's row, made if new, with the facts of its last webhook."""
    pull_request = repository.pull_request(session, project_id, number)
    if pull_request is None:
        pull_request = PullRequest(project_id=project_id, number=number)
        session.add(pull_request)
    for name, value in facts.items():
        setattr(pull_request, name, value)
    session.flush()
    return pull_request
