"""HTTP: what people do on the pages: sign in and out; approve, rerun, cancel, accept on a job's page; end a search.

Every form carries the mark of its session, and the session's token must have scope `write`.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from gprojci_service.access import service as access
from gprojci_service.access import sessions
from gprojci_service.access.service import SessionDep
from gprojci_service.bisections import service as bisections
from gprojci_service.errors import Forbidden, InvalidRequest, Unauthorized
from gprojci_service.gate import overrides
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Project
from gprojci_service.pages.endpoints import JobId, PageRoute, look_at_visitor, own_address, set_session, sign_in_page
from gprojci_service.request_body import read_limited
from gprojci_service.workers import service as workers

FORM_BYTES = 16 * 1024
router = APIRouter(route_class=PageRoute)


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidRequest("a form is needed, as the pages have it; programs use the REST API")
    body = await read_limited(request, FORM_BYTES, "the length of a form")
    form = dict(parse_qsl(body.decode("utf-8", "replace").replace("\x00", ""), keep_blank_values=True))
    request.state.form = form  # for the page that shows it again
    return form


Form = Annotated[dict[str, str], Depends(_form)]


def _writer(request: Request, session: SessionDep, form: Form) -> sessions.Visitor:
    """The visitor whose form it is.

    Raises:
        Unauthorized: nobody is signed in.
        FormNotOurs: the form came from elsewhere.
        Forbidden: the token's scope is another.
    """
    known = look_at_visitor(request, session)
    if known is None or known.token is None:
        raise Unauthorized("sign in with a token of scope 'write' first")
    sessions.check_form(known, form.get("csrf", ""))
    if not known.may_write:
        raise Forbidden(f"this token has scope {known.token.scope!r}, this needs 'write'")
    return known


Writer = Annotated[sessions.Visitor, Depends(_writer, scope="function")]


def _to(address: str) -> RedirectResponse:
    return RedirectResponse(address, status_code=303)


@router.get("/sign-in")
def sign_in_form(request: Request, session: SessionDep, address: Annotated[str, Query(alias="next")] = "/") -> Response:
    return sign_in_page(request, session, address)


@router.post("/sign-in")
def sign_in(request: Request, session: SessionDep, form: Form) -> Response:
    address = own_address(form.get("next", "/"))
    sessions.check_form(look_at_visitor(request, session), form.get("csrf", ""))
    try:
        token = access.of_secret(session, form.get("token", ""))
    except Unauthorized as error:
        return sign_in_page(request, session, address, status=401, problem=error.detail)
    if token.scope == "worker":
        problem = "this is a worker's token; people sign in with one of scope 'write'"
        return sign_in_page(request, session, address, status=403, problem=problem)
    answer = _to(address)
    cookie, _ = sessions.start(request.app.state.settings, token)
    set_session(request, answer, cookie, max_age=int(sessions.LIFETIME.total_seconds()))
    return answer


@router.post("/sign-out")
def sign_out(request: Request, session: SessionDep, form: Form) -> Response:
    sessions.check_form(look_at_visitor(request, session), form.get("csrf", ""))
    answer = _to("/")
    answer.delete_cookie(sessions.COOKIE, httponly=True, samesite="strict")
    return answer


@router.post("/jobs/{job_id}/approve")
def approve(session: SessionDep, visitor: Writer, form: Form, job_id: JobId) -> Response:
    if form.get("looked") != "yes":
        problem = "look at the commit's changes and say so in the form: its code will run on the workers"
        raise InvalidRequest(problem, field="looked")
    jobs.approve(session, job_id, form.get("head_sha", ""), visitor.name)
    return _to(f"/jobs/{job_id}")


@router.post("/jobs/{job_id}/rerun")
def rerun(request: Request, session: SessionDep, visitor: Writer, job_id: JobId) -> Response:
    return _to(f"/jobs/{jobs.rerun(session, request.app.state.settings, job_id).id}")


@router.post("/jobs/{job_id}/cancel")
def cancel(session: SessionDep, visitor: Writer, job_id: JobId) -> Response:
    jobs.cancel(session, job_id, f"cancelled by {visitor.name} on its page")
    return _to(f"/jobs/{job_id}")


@router.post("/workers/{name}/drain")
def drain(session: SessionDep, visitor: Writer, name: str) -> Response:
    workers.drain(session, name)
    return _to("/workers")


@router.post("/workers/{name}/resume")
def resume(session: SessionDep, visitor: Writer, name: str) -> Response:
    workers.resume(session, name)
    return _to("/workers")


@router.post("/jobs/{job_id}/accept")
def accept(request: Request, session: SessionDep, visitor: Writer, form: Form, job_id: JobId) -> Response:
    job = jobs.get(session, job_id)
    backend, _, limit_key = form.get("finding", "").rpartition("/")
    overrides.accept(
        session,
        request.app.state.settings,
        session.get_one(Project, job.project_id),
        head_sha=job.head_sha,
        limit_key=limit_key,
        backend=backend,
        author=visitor.name,
        reason=form.get("reason", ""),
        source="page",
    )
    return _to(f"/jobs/{job_id}")


@router.post("/bisections/{bisection_id}/cancel")
def cancel_bisection(session: SessionDep, visitor: Writer, bisection_id: JobId) -> Response:
    bisections.cancel(session, bisection_id)
    return _to(f"/bisections/{bisection_id}")
