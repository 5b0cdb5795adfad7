"""HTTP: reports, series and samples."""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from gprojci_service.access.service import SessionDep, require_read
from gprojci_service.errors import NotFound
from gprojci_service.identifier import RowId
from gprojci_service.models import Series
from gprojci_service.projects import service as projects
from gprojci_service.results import comparison, export, repository, service
from gprojci_service.results.repository import Choice
from gprojci_service.results.schemas import ChangeOut, ComparisonOut, SampleOut, SeriesOut
from gprojci_suite.contract.report import Slice

router = APIRouter(tags=["results"], dependencies=[Depends(require_read, scope="function")])


class SeriesNotFound(NotFound):
    """No series of that number."""


@router.get("/jobs/{job_id}/report")
def get_report(session: SessionDep, job_id: RowId) -> dict[str, Any]:
    """The job's report as the suite wrote it; the format is documented in kernels/suite/CONTRACT.md."""
    return service.accepted_report(session, job_id).body


@router.get("/jobs/{job_id}/slices.csv", response_class=Response)
def get_slices(session: SessionDep, job_id: RowId) -> Response:
    """Every accuracy slice of the job as CSV; errors are fractions."""
    body = service.accepted_report(session, job_id).body
    slices: list[dict[str, Any]] = (body["accuracy"] or {}).get("slices", [])
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=[field.name for field in fields(Slice)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(slices)
    headers = {"Content-Disposition": f'attachment; filename="gprojci-job-{job_id}-slices.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/projects/{owner}/{name}/series", response_model=list[SeriesOut])
def list_series(session: SessionDep, owner: str, name: str) -> list[Series]:
    """The project's series."""
    project = projects.get(session, f"{owner}/{name}")
    return list(repository.series_of_project(session, project.id))


@router.get("/series/{series_id}/samples")
def list_samples(
    session: SessionDep, series_id: RowId, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000
) -> list[SampleOut]:
    """The samples of a series, newest first."""
    if repository.series_by_id(session, series_id) is None:
        raise SeriesNotFound(f"no series {series_id}")
    return [
        SampleOut(
            sha=sha,
            revision=sample.revision,
            value=sample.value,
            low=sample.low,
            high=sample.high,
            count=sample.count,
            measured_at=sample.measured_at,
        )
        for sample, sha in repository.samples_of_series(session, series_id, limit)
    ]


@router.get("/projects/{owner}/{name}/samples", response_class=StreamingResponse)
def export_samples(
    request: Request,
    session: SessionDep,
    owner: str,
    name: str,
    form: Annotated[export.Format, Query(alias="format")] = "csv",
    metric: str | None = None,
    backend: str | None = None,
    case: str | None = None,
    hardware: str | None = None,
    since: datetime | None = None,
) -> StreamingResponse:
    """The samples of all or some series, oldest first, as CSV or JSON lines; streamed, however many there are."""
    project = projects.get(session, f"{owner}/{name}")
    moment = since if since is None or since.tzinfo else since.replace(tzinfo=UTC)
    choice = Choice(metric, backend, case, hardware, moment)
    lines = export.stream(request.app.state.database, project.id, choice, form)
    headers = {"Content-Disposition": f'attachment; filename="gprojci-{owner}-{name}-samples.{form}"'}
    return StreamingResponse(lines, media_type=export.MEDIA_TYPES[form], headers=headers)


@router.get("/projects/{owner}/{name}/compare")
def compare_commits(session: SessionDep, owner: str, name: str, base: str, head: str) -> ComparisonOut:
    """Two commits of a project, by the beginnings of their SHAs: every metric at both."""
    project = projects.get(session, f"{owner}/{name}")
    return _comparison(comparison.of_commits(session, project, base, head))


@router.get("/jobs/{job_id}/compare/{head_job_id}")
def compare_jobs(session: SessionDep, job_id: RowId, head_job_id: RowId) -> ComparisonOut:
    """The heads of two jobs, as each measured its own: `head_job_id` against `job_id`."""
    return _comparison(comparison.of_jobs(session, job_id, head_job_id))


def _comparison(found: comparison.Comparison) -> ComparisonOut:
    return ComparisonOut(
        base=found.base,
        head=found.head,
        same_session=found.same_session,
        warning=found.warning,
        worse=found.count("worse"),
        better=found.count("better"),
        changes=[ChangeOut.model_validate(change) for change in found.changes],
    )
