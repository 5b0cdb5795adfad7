"""HTTP: verdicts and overrides."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from gprojci_service.access.service import SessionDep, require_read, require_write
from gprojci_service.gate import overrides, repository, service, standing
from gprojci_service.gate.schemas import GateOut, OverrideCreate, OverrideOut, VerdictListed
from gprojci_service.models import Override, Token, Verdict
from gprojci_service.projects import service as projects

router = APIRouter(tags=["verdicts"], dependencies=[Depends(require_read, scope="function")])
override_router = APIRouter(prefix="/overrides", tags=["overrides"])


@router.get("/verdicts", response_model=list[VerdictListed])
def list_verdicts(
    session: SessionDep,
    project: str | None = None,
    head_sha: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[Verdict]:
    """Verdicts, newest first."""
    return service.search(session, project=project, head_sha=head_sha, limit=limit)


@router.get("/projects/{owner}/{name}/gate/{commit}")
def get_gate(session: SessionDep, owner: str, name: str, commit: str) -> GateOut:
    """Where a commit stands, by its SHA or the beginning of it: the newest gating job of each hardware class."""
    return standing.standing(session, f"{owner}/{name}", commit)


@override_router.get("", response_model=list[OverrideOut], dependencies=[Depends(require_read, scope="function")])
def list_overrides(
    session: SessionDep,
    project: str | None = None,
    head_sha: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[Override]:
    """What was accepted, by whom and why, newest first."""
    return list(repository.search_overrides(session, project=project, head_sha=head_sha, limit=limit))


@override_router.post("", response_model=OverrideOut, status_code=201)
def create_override(
    request: Request,
    session: SessionDep,
    token: Annotated[Token, Depends(require_write, scope="function")],
    body: OverrideCreate,
) -> Override:
    """Accepts a broken limit for one commit, in the name of the token, and decides its jobs anew."""
    return overrides.accept(
        session,
        request.app.state.settings,
        projects.get(session, body.project),
        head_sha=body.head_sha,
        limit_key=body.limit_key,
        backend=body.backend,
        author=token.name,
        reason=body.reason,
        source="api",
    )
