"""HTTP: the worker API, and the list of workers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.types import Message

from gprojci_service.access.service import (
    SessionDep,
    authenticate,
    authorize_worker,
    require_read,
    require_worker,
    require_write,
)
from gprojci_service.identifier import RowId
from gprojci_service.jobs import approvals
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Worker
from gprojci_service.request_body import read_limited
from gprojci_service.results import service as results
from gprojci_service.results.schemas import AttemptReport, Received
from gprojci_service.workers import repository, service
from gprojci_service.workers.schemas import (
    Alive,
    AliveAnswer,
    Claim,
    Claimed,
    Heartbeat,
    HeartbeatAnswer,
    Hello,
    KnownMeasurement,
    Log,
    Measurement,
    Return,
    Welcome,
    WorkerOut,
)
from gprojci_service.workers.service import HandedOut


class ReportRoute(APIRoute):
    """Reads a body up to GPROJCI_MAX_REPORT_BYTES, and only from a worker, before FastAPI parses it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of a request."""
        parse = super().get_route_handler()

        async def handle(request: Request) -> Response:
            await run_in_threadpool(authorize_worker, request)
            limit = request.app.state.settings.max_report_bytes
            body = await read_limited(request, limit, "GPROJCI_MAX_REPORT_BYTES")
            unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> Message:
                return unread.pop() if unread else await request.receive()

            return await parse(Request(request.scope, receive))

        return handle


class ClaimRoute(APIRoute):
    """Looks at the token in the claim's own transaction; of a body that nobody can read, before that is said."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of a request."""
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await answer(request)
            except RequestValidationError:
                await run_in_threadpool(authorize_worker, request)
                raise

        return handle


router = APIRouter(prefix="/worker", tags=["worker API"], dependencies=[Depends(require_worker, scope="function")])
claim_router = APIRouter(prefix="/worker", tags=["worker API"], route_class=ClaimRoute)
report_router = APIRouter(prefix="/worker", tags=["worker API"], route_class=ReportRoute)
list_router = APIRouter(prefix="/workers", tags=["workers"])
READ, WRITE = [Depends(require_read, scope="function")], [Depends(require_write, scope="function")]


@list_router.get("", dependencies=READ)
def list_workers(session: SessionDep) -> list[WorkerOut]:
    """All workers that ever said hello."""
    busy = repository.jobs_by_worker(session)
    return [_shown(worker, busy) for worker in repository.all_workers(session)]


def _shown(worker: Worker, busy: dict[int, int]) -> WorkerOut:
    return WorkerOut.model_validate(worker).model_copy(update={"job_id": busy.get(worker.id)})


@router.post("/hello")
def hello(request: Request, session: SessionDep, body: Hello) -> Welcome:
    """A worker process has started."""
    return service.greet(session, request.app.state.settings, body)


@list_router.post("/{name}/drain", dependencies=WRITE)
def drain(session: SessionDep, name: str, unless_drained: bool = False) -> WorkerOut:
    """Gives a worker no more work; what it measures now it finishes. With `unless_drained` 409 where it is drained."""
    return _shown(service.drain(session, name, unless_drained=unless_drained), repository.jobs_by_worker(session))


@list_router.post("/{name}/resume", dependencies=WRITE)
def resume(session: SessionDep, name: str) -> WorkerOut:
    """Gives a drained worker work again."""
    return _shown(service.resume(session, name), repository.jobs_by_worker(session))


@router.post("/alive")
def alive(session: SessionDep, body: Alive) -> AliveAnswer:
    """An idle worker is there; the answer says whether to listen for work."""
    return service.keep_known(session, body)


@claim_router.post("/claim", response_model=Claimed, responses={204: {"description": "nothing waits"}})
async def claim(request: Request, body: Claim) -> Claimed | Response:
    """Takes the next attempt, with its lease and fencing token."""
    state = request.app.state
    async with state.database.requests:
        handed_out = await run_in_threadpool(_hand_out, request, body)
    if handed_out is None:
        return Response(status_code=204)
    if handed_out.asks_github:  # with no connection, and in no thread that other requests need: it may be slow
        moved = await to_thread.run_sync(_ask_github, request, handed_out, limiter=state.asking_github)
        if moved:
            async with state.database.requests:
                await run_in_threadpool(_withdraw, request, handed_out, moved)
            return Response(status_code=204)
    return handed_out.claimed


def _hand_out(request: Request, body: Claim) -> HandedOut | None:
    with request.app.state.database.session(writes=True) as session:
        authenticate(session, request, "worker")
        return service.claim(session, request.app.state.settings, body)


def _ask_github(request: Request, handed_out: HandedOut) -> str:
    """Gives a private project its token; returns why an approval does not carry, else nothing."""
    github, job, project = request.app.state.context.github, handed_out.claimed.job, handed_out.claimed.project
    if handed_out.approved is not None:
        moved = approvals.moved(github, project.name, handed_out.approved, job.head_sha)
        if moved:
            return moved
    if project.private:
        project.clone_token = github.clone_token(project.name)
    return ""


def _withdraw(request: Request, handed_out: HandedOut, reason: str) -> None:
    with request.app.state.database.session(writes=True) as session:
        jobs.withdraw(session, handed_out.claimed.job.id, reason)


@router.post("/attempts/{attempt_id}/heartbeat")
def heartbeat(request: Request, session: SessionDep, attempt_id: RowId, body: Heartbeat) -> HeartbeatAnswer:
    """Renews the lease."""
    return service.heartbeat(session, request.app.state.settings, attempt_id, body)


@router.post("/attempts/{attempt_id}/return", status_code=204)
def give_back(session: SessionDep, attempt_id: RowId, body: Return) -> None:
    """The worker stops: the job waits again at once, and the attempt does not count as a try."""
    service.give_back(session, attempt_id, body)


@router.post("/attempts/{attempt_id}/known")
def known(request: Request, session: SessionDep, attempt_id: RowId, body: Measurement) -> KnownMeasurement:
    """Whether the very same was measured before: the worker may then report that it takes it over."""
    found = results.known(session, request.app.state.settings, attempt_id, body.fencing_token, body.fingerprint)
    return KnownMeasurement(report_id=found.id if found else None, job_id=found.job_id if found else None)


@router.post("/attempts/{attempt_id}/log", status_code=204)
def log(session: SessionDep, attempt_id: RowId, body: Log) -> None:
    """Appends to the attempt's log."""
    service.append_log(session, attempt_id, body)


@report_router.post(
    "/attempts/{attempt_id}/report", responses={413: {"description": "longer than GPROJCI_MAX_REPORT_BYTES"}}
)
def report(request: Request, session: SessionDep, attempt_id: RowId, body: AttemptReport) -> Received:
    """Ends the attempt; may be sent again until it is acknowledged, and is stored once."""
    return results.receive(session, request.app.state.settings, attempt_id, body)
