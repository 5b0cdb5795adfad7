"""HTTP: input sets, and their files."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from starlette.requests import ClientDisconnect

from gprojci_service.access import audit
from gprojci_service.access.service import SessionDep, authorize_upload, require_read, require_worker, require_write
from gprojci_service.errors import InvalidRequest, PayloadTooLarge
from gprojci_service.inputs import service, storage
from gprojci_service.inputs.schemas import InputName, InputSetOut, Statistics

router = APIRouter(prefix="/inputs", tags=["inputs"])
worker_router = APIRouter(
    prefix="/worker/inputs", tags=["worker API"], dependencies=[Depends(require_worker, scope="function")]
)
READ, WRITE = Depends(require_read, scope="function"), Depends(require_write, scope="function")
_FILE = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


class UploadCut(InvalidRequest):
    """The connection ended before the file did; nothing of it was kept."""

    status = 400


@router.get("", dependencies=[READ])
def list_inputs(session: SessionDep) -> list[InputSetOut]:
    """Input sets that some report used, and those that were uploaded."""
    return service.listed(session)


@router.post(
    "",
    status_code=201,
    openapi_extra={"requestBody": {"required": True, **_FILE}},
    responses={200: {"description": "this content is there already, perhaps under another name"}},
)
async def upload_input(
    request: Request,
    response: Response,
    uploaded_by: Annotated[str, Depends(authorize_upload)],
    name: Annotated[InputName, Query()],
    project: str | None = None,
) -> InputSetOut:
    """Takes a safetensors file of an input set, as `gprojci_suite.capture` writes it.

    200 for content that is there already, 409 for a name of another content, 413 too large, 422 not an input set.
    """
    settings = request.app.state.settings
    await run_in_threadpool(_admit, request, name, project)
    declared, limit = request.headers.get("content-length", ""), settings.max_input_bytes
    if declared.isdigit() and int(declared) > limit:
        raise PayloadTooLarge(f"the input set is larger than {limit} bytes (GPROJCI_MAX_INPUT_BYTES)")
    with storage.Incoming(settings.upload_dir, limit) as incoming:
        try:
            async for chunk in request.stream():
                await run_in_threadpool(incoming.write, chunk)
        except ClientDisconnect as error:
            raise UploadCut("the connection ended before the file did; nothing was kept, send it again") from error
        kept, new = await run_in_threadpool(_keep, request, incoming, name, project, uploaded_by)
    response.status_code = 201 if new else 200
    return kept


def _admit(request: Request, name: str, project: str | None) -> None:
    with request.app.state.database.session(writes=False) as session:
        service.admit(session, name, project)


def _keep(
    request: Request, incoming: storage.Incoming, name: str, project: str | None, uploaded_by: str
) -> tuple[InputSetOut, bool]:
    # The transaction begins only now: an upload that takes minutes must not hold the database.
    found, content_hash = incoming.finish()
    with request.app.state.database.session(writes=True) as session:
        audit.note(session, request, audit.Actor(uploaded_by, "token"))
        return service.keep(
            session,
            request.app.state.settings.upload_dir,
            incoming,
            found,
            content_hash,
            name=name,
            project=project,
            uploaded_by=uploaded_by,
        )


@router.get("/{name}", dependencies=[READ])
def get_input(session: SessionDep, name: str) -> InputSetOut:
    """One input set, by name or content hash."""
    return service.get(session, name)


@router.get("/{name}/file", dependencies=[WRITE], response_class=FileResponse, responses={200: _FILE})
def get_input_file(request: Request, session: SessionDep, name: str) -> FileResponse:
    """The file of an uploaded set, in ranges where they are asked for; scope `write`."""
    return _file(request, session, name)


@router.put("/{name}/statistics", dependencies=[WRITE])
def put_statistics(session: SessionDep, name: str, body: Statistics) -> InputSetOut:
    """Notes what `gprojci-suite describe` says of an uploaded set, until a report says it."""
    return service.describe(session, name, body)


@router.delete("/{name}", status_code=204, dependencies=[WRITE])
def remove_input(request: Request, session: SessionDep, name: str) -> None:
    """Removes an uploaded set that no report used; 409 for one that a report did."""
    service.remove(session, request.app.state.settings.upload_dir, name)


@worker_router.get("/{name}")
def find_input(request: Request, session: SessionDep, name: str) -> InputSetOut:
    """An uploaded set, by name or content hash."""
    row, _ = service.stored(session, request.app.state.settings.upload_dir, name)
    return service.get(session, row.name)


@worker_router.get("/{name}/file", response_class=FileResponse, responses={200: _FILE})
def download_input(request: Request, session: SessionDep, name: str) -> FileResponse:
    """The file of an uploaded set, in ranges where they are asked for."""
    return _file(request, session, name)


def _file(request: Request, session: SessionDep, name: str) -> FileResponse:
    row, path = service.stored(session, request.app.state.settings.upload_dir, name)
    # One content has one file for as long as the row is there, so its hash names these very bytes.
    return FileResponse(path, media_type="application/octet-stream", headers={"ETag": f'"{row.content_hash}"'})
