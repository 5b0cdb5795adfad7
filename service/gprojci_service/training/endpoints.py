"""HTTP: training runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from gprojci_service.access import audit
from gprojci_service.access.service import SessionDep, authorize_upload, require_read, require_write
from gprojci_service.models import Training, TrainingRun
from gprojci_service.request_body import read_report
from gprojci_service.training import check, export, repository, service, summary
from gprojci_service.training.schemas import (
    BackendOut,
    CheckOut,
    CheckTold,
    Limit,
    RunOut,
    SummaryOut,
    TakenOut,
    TrainingName,
    TrainingOut,
)
from gprojci_suite.contract.training import reference

router = APIRouter(prefix="/training", tags=["training"])
READ, WRITE = Depends(require_read, scope="function"), Depends(require_write, scope="function")
Name = Annotated[TrainingName, Path()]
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}
_CSV = {"content": {"text/csv": {"schema": {"type": "string"}}}}


@router.get("", dependencies=[READ])
def list_trainings(session: SessionDep, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> list[TrainingOut]:
    """Trainings, newest first, with their runs."""
    found = repository.newest(session, limit)
    runs: dict[int, list[TrainingRun]] = defaultdict(list)
    for run in repository.runs(session, found):
        runs[run.training_id].append(run)
    return [TrainingOut(**_shown(each, runs[each.id])) for each in found]


@router.put("/{name}", openapi_extra=_BODY, responses={201: {"description": "the first of its name"}})
async def put_training(
    request: Request, response: Response, name: Name, sent_by: Annotated[str, Depends(authorize_upload)]
) -> TakenOut:
    """Takes a report of `gprojci-suite train` as far as its runs have come; may be sent again and again.

    A run replaces the one of the same backend and seed, unless what is there is newer; other runs stay. 409 for a
    report of another setup, ruler or hardware than the runs of that name, 413 too large, 422 no training report.
    """
    taken, new = await run_in_threadpool(_take, request, name, await read_report(request), sent_by)
    response.status_code = 201 if new else 200
    return taken


def _take(request: Request, name: str, text: str, sent_by: str) -> tuple[TakenOut, bool]:
    limit = request.app.state.settings.max_report_bytes
    with request.app.state.database.session(writes=True) as session:
        audit.note(session, request, audit.Actor(sent_by, "token"))
        taken = service.take(session, name, text, sent_by=sent_by, limit=limit)
        return TakenOut(**_shown(taken.training, taken.runs), older=list(taken.older)), taken.new


def _shown(training: Training, runs: Sequence[TrainingRun]) -> dict[str, Any]:
    return {
        "name": training.name,
        "hardware": training.hardware,
        "setup": training.setup,
        "begun_at": training.begun_at,
        "sent_at": training.sent_at,
        "sent_by": training.sent_by,
        "runs": [RunOut(**{field: run.facts[field] for field in RunOut.model_fields}) for run in runs],
    }


@router.get("/{name}", dependencies=[READ])
def get_training(session: SessionDep, name: Name) -> dict[str, Any]:
    """All its runs as one report; the format is documented in kernels/suite/CONTRACT.md."""
    return service.report(session, service.get(session, name)).to_json()


@router.get("/{name}/summary", dependencies=[READ])
def get_summary(session: SessionDep, name: Name) -> SummaryOut:
    """What came of each backend, with the spread over seeds."""
    found = summary.summaries(service.report(session, service.get(session, name)))
    backends = [BackendOut.model_validate(entry) for entry in found]
    return SummaryOut(name=name, reference=reference(each.backend for each in found), backends=backends)


@router.get("/{name}/check", dependencies=[READ])
def check_training(
    session: SessionDep,
    name: Name,
    backend: Annotated[list[str], Query(max_length=100)] = [],  # noqa: B006
    loss: Limit = summary.PARTED,
    dq_error: Limit = summary.ALARM,
) -> CheckOut:
    """What is wrong with it, of each backend its worst seed; what cannot be told is. All backends but FP32's, or those
    named; `loss` in nats, `dq_error` a fraction."""
    found = summary.summaries(service.report(session, service.get(session, name)))
    return CheckOut(name=name, wrong=check.wrong(name, found, backend, loss, dq_error))


@router.post("/{name}/check", dependencies=[WRITE])
def tell_of_training(session: SessionDep, name: Name, body: CheckTold) -> CheckOut:
    """The same, and where something is wrong the channels of a project are told (`training.wrong`)."""
    checked = check_training(session, name, body.backend, body.loss, body.dq_error)
    return checked.model_copy(update={"told": service.tell(session, body.project, name, checked.wrong)})


@router.get("/{name}/series.csv", dependencies=[READ], response_class=StreamingResponse, responses={200: _CSV})
def get_series(session: SessionDep, name: Name) -> StreamingResponse:
    """Every series of every run as CSV: backend, seed, step, layer, quantity, value."""
    report = service.report(session, service.get(session, name))
    headers = {"Content-Disposition": f'attachment; filename="gprojci-training-{name}.csv"'}
    return StreamingResponse(export.lines(report), media_type="text/csv; charset=utf-8", headers=headers)


@router.delete("/{name}", status_code=204, dependencies=[WRITE])
def remove_training(session: SessionDep, name: Name) -> None:
    """Removes a training with all its runs."""
    service.remove(session, name)
