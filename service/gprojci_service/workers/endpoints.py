"""HTTP: the worker API, and the list of workers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.types import Message

from gprojci_service.access.service import SessionDep, authorize_worker, require_read, require_worker, require_write
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


router = APIRouter(prefix="/worker", tags=["worker API"], dependencies=[Depends(require_worker, scope="function")])
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
def drain(session: SessionDep, name: str) -> WorkerOut:
    """Gives a worker no more work; what it measures now it finishes."""
    return _shown(service.drain(session, name), repository.jobs_by_worker(session))


@list_router.post("/{name}/resume", dependencies=WRITE)
def resume(session: SessionDep, name: str) -> WorkerOut:
    """Gives a drained worker work again."""
    return _shown(service.resume(session, name), repository.jobs_by_worker(session))


@router.post("/alive")
def alive(session: SessionDep, body: Alive) -> AliveAnswer:
    """An idle worker is there; the answer says whether to listen for work."""
    return service.keep_known(session, body)


@router.post("/claim", response_model=Claimed, responses={204: {"description": "nothing waits"}})
def claim(request: Request, session: SessionDep, body: Claim) -> Claimed | Response:
    """Takes the next attempt, with its lease and fencing token."""
    claimed = service.claim(session, request.app.state.settings, body)
    if claimed is None:
        return Response(status_code=204)
    github, job = request.app.state.context.github, claimed.job
    untrusted = jobs.approved_pull_request(session, job.id)
    session.commit()  # GitHub is asked outside of any transaction
    if untrusted is not None:
        moved = approvals.moved(github, claimed.project.name, untrusted.number, job.head_sha)
        if moved:
            jobs.withdraw(session, job.id, moved)
            return Response(status_code=204)
    if claimed.project.private:
        claimed.project.clone_token = github.clone_token(claimed.project.name)
    return claimed


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
