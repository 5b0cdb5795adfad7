"""HTTP: channels and what they were told."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from gprojci_service.access.service import SessionDep, require_write
from gprojci_service.identifier import RowId
from gprojci_service.models import Notification
from gprojci_service.notifications import repository, service
from gprojci_service.notifications.schemas import ChannelCreate, ChannelCreated, ChannelOut, NotificationOut
from gprojci_service.projects import service as projects

router = APIRouter(tags=["notifications"], dependencies=[Depends(require_write, scope="function")])


@router.get("/projects/{owner}/{name}/channels")
def list_channels(session: SessionDep, owner: str, name: str) -> list[ChannelOut]:
    """The project's channels, without their secrets."""
    project = projects.get(session, f"{owner}/{name}")
    return [ChannelOut.of(channel, project.name) for channel in repository.channels(session, project.id)]


@router.post("/channels", status_code=201)
def create_channel(request: Request, session: SessionDep, body: ChannelCreate) -> ChannelCreated:
    """Makes a channel; its secret is in this answer and nowhere else."""
    made = service.create(session, request.app.state.settings, body)
    shown = ChannelOut.of(made, body.project).model_dump()
    return ChannelCreated(**shown, secret=made.secret if made.kind == "webhook" else None)


@router.delete("/channels/{channel_id}", status_code=204)
def remove_channel(session: SessionDep, channel_id: RowId) -> None:
    """Removes a channel, with what it was or was to be told."""
    service.remove(session, channel_id)


@router.post("/channels/{channel_id}/test", response_model=NotificationOut, status_code=202)
def test_channel(session: SessionDep, channel_id: RowId) -> Notification:
    """Sends a test, whatever the channel asked for."""
    return service.test(session, channel_id)


@router.get("/channels/{channel_id}/notifications", response_model=list[NotificationOut])
def list_notifications(
    session: SessionDep, channel_id: RowId, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> list[Notification]:
    """What a channel was told and what became of it, newest first."""
    return list(repository.of_channel(session, service.get(session, channel_id).id, limit))
