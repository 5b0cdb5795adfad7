"""HTTP: the worker API, and the list of workers."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from gprojci_service.access.service import SessionDep, require_read, require_worker
from gprojci_service.identifier import RowId
from gprojci_service.models import Worker
from gprojci_service.results import service as results
from gprojci_service.results.schemas import AttemptReport, Received
from gprojci_service.workers import repository, service
from gprojci_service.workers.schemas import (
    Alive,
    Claim,
    Claimed,
    Heartbeat,
    HeartbeatAnswer,
    Hello,
    Log,
    Welcome,
    WorkerOut,
)

router = APIRouter(prefix="/worker", tags=["worker API"], dependencies=[Depends(require_worker, scope="function")])
list_router = APIRouter(prefix="/workers", tags=["workers"], dependencies=[Depends(require_read, scope="function")])


@list_router.get("", response_model=list[WorkerOut])
def list_workers(session: SessionDep) -> list[Worker]:
    """All workers that ever said hello."""
    return list(repository.all_workers(session))


@router.post("/hello")
def hello(request: Request, session: SessionDep, body: Hello) -> Welcome:
    """A worker process has started."""
    return service.greet(session, request.app.state.settings, body)


@router.post("/alive", status_code=204)
def alive(session: SessionDep, body: Alive) -> None:
    """An idle worker is there."""
    service.keep_known(session, body.worker)


@router.post("/claim", response_model=Claimed, responses={204: {"description": "nothing waits"}})
def claim(request: Request, session: SessionDep, body: Claim) -> Claimed | Response:
    """Takes the next attempt, with its lease and fencing token."""
    claimed = service.claim(session, request.app.state.settings, body)
    return Response(status_code=204) if claimed is None else claimed


@router.post("/attempts/{attempt_id}/heartbeat")
def heartbeat(request: Request, session: SessionDep, attempt_id: RowId, body: Heartbeat) -> HeartbeatAnswer:
    """Renews the lease."""
    return service.heartbeat(session, request.app.state.settings, attempt_id, body)


@router.post("/attempts/{attempt_id}/log", status_code=204)
def log(session: SessionDep, attempt_id: RowId, body: Log) -> None:
    """Appends to the attempt's log."""
    service.append_log(session, attempt_id, body)


@router.post("/attempts/{attempt_id}/report")
def report(request: Request, session: SessionDep, attempt_id: RowId, body: AttemptReport) -> Received:
    """Ends the attempt; may be sent again until it is acknowledged, and is stored once."""
    return results.receive(session, request.app.state.settings, attempt_id, body)
