"""HTTP: input sets."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from gprojci_service.access.service import SessionDep, require_read
from gprojci_service.inputs import repository
from gprojci_service.inputs.schemas import InputSetOut
from gprojci_service.models import InputSet

router = APIRouter(prefix="/inputs", tags=["inputs"], dependencies=[Depends(require_read, scope="function")])


@router.get("", response_model=list[InputSetOut])
def list_inputs(session: SessionDep) -> list[InputSet]:
    """Input sets that some report used."""
    return list(repository.all_inputs(session))
