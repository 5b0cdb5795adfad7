"""HTTP: what people do on a regression's page: say what is to become of it, who looks after it, and comment.

As on a job's page every form carries the mark of its session, whose token or person must be allowed to write.
"""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from gprojci_service.access.service import SessionDep
from gprojci_service.pages.endpoints import JobId, PageRoute
from gprojci_service.pages.writers import Form, Writer
from gprojci_service.regressions import service

router = APIRouter(route_class=PageRoute)


def _back(regression_id: int) -> Response:
    return RedirectResponse(f"/regressions/{regression_id}", status_code=303)


@router.post("/regressions/{regression_id}/state")
def change_state(visitor: Writer, session: SessionDep, form: Form, regression_id: JobId) -> Response:
    service.change_state(
        session,
        regression_id,
        form.get("state", ""),
        author=visitor.name,
        reason=form.get("reason"),
        fixed_by=form.get("commit", "").strip(),
    )
    return _back(regression_id)


@router.post("/regressions/{regression_id}/owner")
def set_owner(visitor: Writer, session: SessionDep, form: Form, regression_id: JobId) -> Response:
    service.assign(session, regression_id, form.get("owner"), author=visitor.name)
    return _back(regression_id)


@router.post("/regressions/{regression_id}/comments")
def comment(visitor: Writer, session: SessionDep, form: Form, regression_id: JobId) -> Response:
    service.comment(session, regression_id, form.get("text", ""), author=visitor.name)
    return _back(regression_id)
