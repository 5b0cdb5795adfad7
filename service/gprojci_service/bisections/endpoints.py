"""HTTP: bisections."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from gprojci_service.access.service import SessionDep, require_read, require_write
from gprojci_service.bisections import repository, service
from gprojci_service.bisections.schemas import BisectionCreate, BisectionOut
from gprojci_service.identifier import RowId
from gprojci_service.models import Token

router = APIRouter(prefix="/bisections", tags=["bisections"])
READ = [Depends(require_read, scope="function")]
Writer = Annotated[Token, Depends(require_write, scope="function")]


@router.get("", dependencies=READ)
def list_bisections(
    request: Request,
    session: SessionDep,
    project: str | None = None,
    state: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[BisectionOut]:
    """Bisections, newest first."""
    found = repository.search(session, project=project, state=state, limit=limit)
    return [service.view(session, request.app.state.settings, bisection) for bisection in found]


@router.post("", status_code=201)
def start_bisection(request: Request, session: SessionDep, token: Writer, body: BisectionCreate) -> BisectionOut:
    """Searches for the first commit of a range at which a metric is worse; the service goes on by itself."""
    settings = request.app.state.settings
    return service.view(session, settings, service.start(session, settings, body, token.name))


@router.get("/{bisection_id}", dependencies=READ)
def get_bisection(request: Request, session: SessionDep, bisection_id: RowId) -> BisectionOut:
    """One bisection: what was measured, which commits remain."""
    return service.view(session, request.app.state.settings, service.get(session, bisection_id))


@router.post("/{bisection_id}/cancel")
def cancel_bisection(request: Request, session: SessionDep, token: Writer, bisection_id: RowId) -> BisectionOut:
    """Ends a search and the job that it waits for."""
    return service.view(session, request.app.state.settings, service.cancel(session, bisection_id))
