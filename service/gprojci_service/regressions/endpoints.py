"""HTTP: regressions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from gprojci_service.access.service import SessionDep, require_read, require_write
from gprojci_service.identifier import RowId
from gprojci_service.models import Regression
from gprojci_service.regressions import repository, service
from gprojci_service.regressions.schemas import RegressionOut, Triage

router = APIRouter(prefix="/regressions", tags=["regressions"])


@router.get("", response_model=list[RegressionOut], dependencies=[Depends(require_read, scope="function")])
def list_regressions(
    session: SessionDep,
    project: str | None = None,
    state: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> list[Regression]:
    """Regressions, newest first."""
    return list(repository.search(session, project=project, state=state, limit=limit))


@router.post(
    "/{regression_id}/triage", response_model=RegressionOut, dependencies=[Depends(require_write, scope="function")]
)
def triage_regression(session: SessionDep, regression_id: RowId, body: Triage) -> Regression:
    """Sets its triage state: acknowledged, ignored with a reason, fixed."""
    return service.triage(session, regression_id, body)
