"""HTTP: verdicts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from gprojci_service.access.service import SessionDep, require_read
from gprojci_service.gate import service
from gprojci_service.gate.schemas import VerdictListed
from gprojci_service.models import Verdict

router = APIRouter(prefix="/verdicts", tags=["verdicts"], dependencies=[Depends(require_read, scope="function")])


@router.get("", response_model=list[VerdictListed])
def list_verdicts(
    session: SessionDep,
    project: str | None = None,
    head_sha: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[Verdict]:
    """Verdicts, newest first."""
    return service.search(session, project=project, head_sha=head_sha, limit=limit)
