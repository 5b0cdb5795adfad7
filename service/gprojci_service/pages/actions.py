"""HTTP: what people do on the pages: sign in and out; approve, rerun, cancel, accept on a job's page; end a search.

Every form carries the mark of its session, whose token or person must be allowed to write (`writers.py`).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from gprojci_service.access import audit, rate_limits, sessions
from gprojci_service.access import service as access
from gprojci_service.access.service import SessionDep
from gprojci_service.bisections import service as bisections
from gprojci_service.errors import InvalidRequest, Unauthorized
from gprojci_service.gate import overrides
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Project
from gprojci_service.pages.endpoints import JobId, PageRoute, look_at_visitor, own_address, set_session, sign_in_page
from gprojci_service.pages.writers import Form, Writer
from gprojci_service.workers import service as workers

router = APIRouter(route_class=PageRoute)


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
        rate_limits.of(request).count("sign-in", rate_limits.client_of(request))
        return sign_in_page(request, session, address, status=401, problem=error.detail)
    if token.scope == "worker":
        problem = "this is a worker's token; people sign in with one of scope 'write', 'read' or 'admin'"
        return sign_in_page(request, session, address, status=403, problem=problem)
    audit.note(session, request, audit.Actor(token.name, "session"))
    answer = _to(address)
    cookie, _ = sessions.start(request.app.state.settings, token)
    set_session(request, answer, cookie, max_age=int(sessions.LIFETIME.total_seconds()))
    return answer


@router.post("/sign-out")
def sign_out(request: Request, session: SessionDep, form: Form) -> Response:
    known = sessions.check_form(look_at_visitor(request, session), form.get("csrf", ""))
    sessions.end(session, known)
    answer = _to("/")
    answer.delete_cookie(sessions.COOKIE, httponly=True, samesite="strict")
    return answer


@router.post("/jobs/{job_id}/approve")
def approve_job(visitor: Writer, session: SessionDep, form: Form, job_id: JobId) -> Response:
    if form.get("looked") != "yes":
        problem = "look at the commit's changes and say so in the form: its code will run on the workers"
        raise InvalidRequest(problem, field="looked")
    jobs.approve(session, job_id, form.get("head_sha", ""), visitor.name)
    return _to(f"/jobs/{job_id}")


@router.post("/jobs/{job_id}/rerun")
def rerun_job(visitor: Writer, request: Request, session: SessionDep, job_id: JobId) -> Response:
    return _to(f"/jobs/{jobs.rerun(session, request.app.state.settings, job_id).id}")


@router.post("/jobs/{job_id}/cancel")
def cancel_job(visitor: Writer, session: SessionDep, job_id: JobId) -> Response:
    jobs.cancel(session, job_id, f"cancelled by {visitor.name} on its page")
    return _to(f"/jobs/{job_id}")


@router.post("/workers/{name}/drain")
def drain_worker(visitor: Writer, session: SessionDep, form: Form, name: str) -> Response:
    workers.drain(session, name)
    return _to(own_address(form.get("next", "/workers")))


@router.post("/workers/{name}/resume")
def resume_worker(visitor: Writer, session: SessionDep, form: Form, name: str) -> Response:
    workers.resume(session, name)
    return _to(own_address(form.get("next", "/workers")))


@router.post("/jobs/{job_id}/accept")
def accept_finding(visitor: Writer, request: Request, session: SessionDep, form: Form, job_id: JobId) -> Response:
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
def cancel_bisection(visitor: Writer, session: SessionDep, bisection_id: JobId) -> Response:
    bisections.cancel(session, bisection_id)
    return _to(f"/bisections/{bisection_id}")
