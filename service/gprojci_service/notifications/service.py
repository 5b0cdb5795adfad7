"""Decisions about channels: who is told what. Without a channel nobody is told anything."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.destination import DestinationRefused, check_url
from gprojci_service.errors import Conflict, InvalidRequest, NotFound
from gprojci_service.models import Notification, NotificationChannel, Project, now
from gprojci_service.models.notification_channel import SEVERITIES
from gprojci_service.notifications import formats, outbox, repository, signing
from gprojci_service.notifications.events import EVENTS
from gprojci_service.notifications.schemas import ChannelCreate
from gprojci_service.projects import service as projects
from gprojci_service.settings import Settings


class ChannelNotFound(NotFound):
    """No channel of that number."""


class ChannelExists(Conflict):
    """The project has a channel of that name."""


def create(session: Session, settings: Settings, body: ChannelCreate) -> NotificationChannel:
    """Makes a channel; its secret is chosen here unless one is given.

    Raises:
        ProjectNotFound: there is no such project.
        ChannelExists: the name is taken.
        InvalidRequest: the address, the secret or an event is not one that can be used.
    """
    project = projects.get(session, body.project)
    if repository.channel_by_name(session, project.id, body.name) is not None:
        raise ChannelExists(f"{project.name} has a channel {body.name!r} already; remove it first")
    _check(settings, body)
    made = NotificationChannel(
        project_id=project.id,
        name=body.name,
        kind=body.kind,
        url=body.url.get_secret_value(),
        secret=body.secret.get_secret_value() if body.secret else signing.new_secret(),
        minimum_severity=body.minimum_severity,
        events=body.events,
    )
    session.add(made)
    session.flush()
    return made


def _check(settings: Settings, body: ChannelCreate) -> None:
    try:
        check_url(body.url.get_secret_value(), private=settings.private_notifications)
    except DestinationRefused as error:
        raise InvalidRequest(f"url: {error}") from error
    if body.secret is not None:
        try:
            signing.key_of(body.secret.get_secret_value())
        except ValueError as error:
            raise InvalidRequest(f"secret: {error}; leave it out and one is made") from error
    for event in body.events or ():
        if event not in EVENTS:
            raise InvalidRequest(f"events: {event!r} does not exist; use some of {', '.join(EVENTS)}")


def get(session: Session, channel_id: int) -> NotificationChannel:
    """Raises:
    ChannelNotFound: there is none of that number.
    """
    channel = repository.channel(session, channel_id)
    if channel is None:
        raise ChannelNotFound(f"no channel {channel_id}; `gprojci notification list` shows them")
    return channel


def remove(session: Session, channel_id: int) -> None:
    """Removes a channel with what it was or was to be told.

    Raises:
        ChannelNotFound: there is none of that number.
    """
    repository.remove(session, get(session, channel_id))


def test(session: Session, channel_id: int) -> Notification:
    """Sends a test through a channel, also one that was disabled: its receiver may be back.

    Raises:
        ChannelNotFound: there is none of that number.
    """
    channel = get(session, channel_id)
    channel.disabled_reason = None
    project = session.get_one(Project, channel.project_id)
    title = f"a test of the channel {channel.name}"
    path = f"/projects/{project.name}"
    return _enqueue(session, project, channel, "channel.test", "info", title, path, {})


def publish(
    session: Session,
    project: Project,
    event: str,
    *,
    severity: str,
    title: str,
    path: str,
    facts: dict[str, Any],
) -> list[str]:
    """Puts an event into the outbox of every channel of the project that asked for it; `path` is of its page.

    Returns the names of those channels.
    """
    told = [channel for channel in repository.channels(session, project.id) if _wants(channel, event, severity)]
    for channel in told:
        _enqueue(session, project, channel, event, severity, title, path, facts)
    return [channel.name for channel in told]


def _wants(channel: NotificationChannel, event: str, severity: str) -> bool:
    loud = SEVERITIES.index(severity) >= SEVERITIES.index(channel.minimum_severity)
    return loud and channel.disabled_reason is None and (channel.events is None or event in channel.events)


def _enqueue(
    session: Session,
    project: Project,
    channel: NotificationChannel,
    event: str,
    severity: str,
    title: str,
    path: str,
    facts: dict[str, Any],
) -> Notification:
    moment = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    body = formats.message(event, moment, project.name, severity, title, path, facts)
    return outbox.enqueue(session, channel, event, severity, body)
