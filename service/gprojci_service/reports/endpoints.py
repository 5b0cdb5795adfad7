"""HTTP: imported reports."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from gprojci_service.access import audit
from gprojci_service.access.service import SessionDep, authorize_upload, require_read, require_write
from gprojci_service.identifier import RowId
from gprojci_service.models import ImportedReport
from gprojci_service.reports import repository, service
from gprojci_service.reports.schemas import ImportedReportOut
from gprojci_service.request_body import read_report

router = APIRouter(prefix="/reports", tags=["imported reports"])
READ, WRITE = Depends(require_read, scope="function"), Depends(require_write, scope="function")
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


@router.get("", response_model=list[ImportedReportOut], dependencies=[READ])
def list_reports(session: SessionDep, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> list[ImportedReport]:
    """Imported reports, newest first, without their bodies."""
    return list(repository.newest(session, limit))


@router.post(
    "",
    status_code=201,
    openapi_extra=_BODY,
    responses={200: {"description": "it was there already"}},
)
async def import_report(
    request: Request,
    response: Response,
    imported_by: Annotated[str, Depends(authorize_upload)],
    title: Annotated[str, Query(min_length=1, max_length=200)],
) -> ImportedReportOut:
    """Takes a report as `gprojci-suite bench --json` wrote it; the same one again: 200, under the new title."""
    taken, new = await run_in_threadpool(_take, request, imported_by, title, await read_report(request))
    response.status_code = 201 if new else 200
    return taken


def _take(request: Request, imported_by: str, title: str, text: str) -> tuple[ImportedReportOut, bool]:
    with request.app.state.database.session(writes=True) as session:
        audit.note(session, request, audit.Actor(imported_by, "token"))
        row, new = service.take(session, title, text)
        return ImportedReportOut.model_validate(row), new


@router.get("/{report_id}", dependencies=[READ])
def get_report(session: SessionDep, report_id: RowId) -> dict[str, Any]:
    """The report itself; the format is documented in kernels/suite/CONTRACT.md."""
    return service.get(session, report_id).body


@router.delete("/{report_id}", status_code=204, dependencies=[WRITE])
def remove_report(session: SessionDep, report_id: RowId) -> None:
    """Removes an imported report."""
    service.remove(session, report_id)
