"""HTTP: jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse

from gprojci_service.access.service import SessionDep, require_read, require_write
from gprojci_service.errors import JobNotOpen
from gprojci_service.gate import repository as verdicts
from gprojci_service.identifier import RowId
from gprojci_service.jobs import backfill, repository, service, usage
from gprojci_service.jobs.schemas import (
    LOG_CURSOR,
    AttemptOut,
    Backfill,
    BackfillOut,
    JobApprove,
    JobCancel,
    JobCreate,
    JobDetail,
    JobOut,
    UsageOut,
    VerdictOut,
)
from gprojci_service.models import Job, Project, Token, now
from gprojci_service.projects import service as projects
from gprojci_service.results import repository as results

router = APIRouter(prefix="/jobs", tags=["jobs"])
READ = [Depends(require_read, scope="function")]
WRITE = [Depends(require_write, scope="function")]


@router.get("", response_model=list[JobOut], dependencies=READ)
def list_jobs(
    session: SessionDep,
    project: str | None = None,
    state: str | None = None,
    head_sha: str | None = None,
    kind: str | None = None,
    before: Annotated[
        int | None, Query(ge=1, le=2**62, description="Only jobs with a smaller number: the next page.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[Job]:
    """Jobs, newest first; state `open` is any that has not ended."""
    found = repository.search(
        session, project=project, state=state, head_sha=head_sha, kind=kind, limit=limit, before=before
    )
    return list(found)


@router.post("", response_model=list[JobOut], status_code=201, dependencies=WRITE)
def create_job(request: Request, session: SessionDep, body: JobCreate) -> list[Job]:
    """Asks for a measurement by hand: a job for each hardware class of the project."""
    project = projects.get(session, body.project)
    created = service.create(
        session,
        request.app.state.settings,
        project,
        kind="manual",
        head_sha=body.head_sha,
        base_sha=body.base_sha,
        ref=None,
    )
    if not created:
        raise JobNotOpen("these commits have a job already; find it with GET /api/v1/jobs?head_sha=… and rerun it")
    return [service.get(session, job_id) for job_id in created]


@router.post("/backfill", response_model=BackfillOut, status_code=201, dependencies=WRITE)
def start_backfill(request: Request, session: SessionDep, body: Backfill) -> backfill.Backfilled:
    """Measures every Nth commit of a range that was not measured yet, after whatever else waits."""
    return backfill.backfill(session, request.app.state.settings, body)


@router.get("/{job_id}", dependencies=READ)
def get_job(request: Request, session: SessionDep, job_id: RowId) -> JobDetail:
    """One job with its attempts and verdict."""
    job, attempts = service.get(session, job_id), repository.attempts_of(session, job_id)
    took = usage.usage(attempts, job.hardware, request.app.state.settings, now())
    verdict = verdicts.of_job(session, job_id)
    return JobDetail(
        **JobOut.model_validate(job).model_dump(),
        project=session.get_one(Project, job.project_id).name,
        usage=UsageOut.model_validate(took),
        taken_from_job=results.taken_from(session, job_id),
        attempts=[AttemptOut.model_validate(attempt) for attempt in attempts],
        verdict=VerdictOut.model_validate(verdict) if verdict else None,
    )


@router.get("/{job_id}/log", dependencies=READ, response_class=PlainTextResponse)
def get_log(
    session: SessionDep,
    job_id: RowId,
    after: Annotated[
        int, Query(ge=0, le=2**62, description="The header GProjCI-Log-Cursor of an answer: only what came after it.")
    ] = 0,
) -> PlainTextResponse:
    """What the job's attempts printed, one after the other; the header GProjCI-Log-Cursor says how far this goes."""
    service.get(session, job_id)
    text, cursor = results.log_of_job(session, job_id, after)
    return PlainTextResponse(text, headers={LOG_CURSOR: str(cursor)})


@router.post("/{job_id}/cancel", response_model=JobOut, dependencies=WRITE)
def cancel_job(session: SessionDep, job_id: RowId, body: JobCancel) -> Job:
    """Cancels an open job."""
    return service.cancel(session, job_id, body.reason)


@router.post("/{job_id}/approve", response_model=JobOut)
def approve_job(
    session: SessionDep,
    token: Annotated[Token, Depends(require_write, scope="function")],
    job_id: RowId,
    body: JobApprove,
) -> Job:
    """Lets the commit of a fork or of a first-time author be built, on every hardware class that waits for it."""
    return service.approve(session, job_id, body.head_sha, token.name)


@router.post("/{job_id}/rerun", response_model=JobOut, status_code=201, dependencies=WRITE)
def rerun_job(request: Request, session: SessionDep, job_id: RowId) -> Job:
    """Measures the same commits once more."""
    return service.rerun(session, request.app.state.settings, job_id)
