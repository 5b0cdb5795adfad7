"""HTTP: projects."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from gprojci_service.access.service import SessionDep, require_read, require_write
from gprojci_service.models import Project
from gprojci_service.projects import repository, service
from gprojci_service.projects.schemas import ProjectCreate, ProjectOut

router = APIRouter(prefix="/projects", tags=["projects"])
READ = [Depends(require_read, scope="function")]
WRITE = [Depends(require_write, scope="function")]


@router.get("", response_model=list[ProjectOut], dependencies=READ)
def list_projects(session: SessionDep) -> list[Project]:
    """All projects that are not archived."""
    return list(repository.all_projects(session))


@router.post("", response_model=ProjectOut, status_code=201, dependencies=WRITE)
def create_project(session: SessionDep, body: ProjectCreate) -> Project:
    """Registers a project by hand."""
    return service.create(session, body)


@router.get("/{owner}/{name}", response_model=ProjectOut, dependencies=READ)
def get_project(session: SessionDep, owner: str, name: str) -> Project:
    """One project."""
    return service.get(session, f"{owner}/{name}")
