"""HTTP: projects."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from gprojci_service.access.service import SessionDep, require_admin, require_read, require_write
from gprojci_service.models import Project
from gprojci_service.projects import repository, service
from gprojci_service.projects.schemas import ProjectContents, ProjectCreate, ProjectOut

router = APIRouter(prefix="/projects", tags=["projects"])
READ = [Depends(require_read, scope="function")]
ADMIN = [Depends(require_admin, scope="function")]
WRITE = [Depends(require_write, scope="function")]


@router.get("", response_model=list[ProjectOut], dependencies=READ)
def list_projects(session: SessionDep) -> list[Project]:
    """All projects that are not archived."""
    return list(repository.all_projects(session))


@router.post("", response_model=ProjectOut, status_code=201, dependencies=WRITE)
def create_project(request: Request, session: SessionDep, body: ProjectCreate) -> Project:
    """Registers a project by hand."""
    return service.create(session, body, private_network=request.app.state.settings.private_repositories)


@router.get("/{owner}/{name}", response_model=ProjectOut, dependencies=READ)
def get_project(session: SessionDep, owner: str, name: str) -> Project:
    """One project."""
    return service.get(session, f"{owner}/{name}")


@router.get("/{owner}/{name}/contents", dependencies=READ)
def get_contents(session: SessionDep, owner: str, name: str) -> ProjectContents:
    """What would be lost with the project: rows by table."""
    return service.contents(session, f"{owner}/{name}")


@router.delete("/{owner}/{name}", dependencies=ADMIN)
def remove_project(session: SessionDep, owner: str, name: str) -> ProjectContents:
    """Deletes the project with all its jobs and results, for ever; says what was lost."""
    return service.remove(session, f"{owner}/{name}")
