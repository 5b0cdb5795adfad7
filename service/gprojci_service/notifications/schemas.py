"""What the notification endpoints take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from gprojci_service.models import NotificationChannel

Severity = Literal["info", "warning", "critical"]


class ChannelCreate(BaseModel):
    """A channel to be made."""

    project: str = Field(description="Full name, `owner/name`.")
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")
    kind: Literal["webhook", "slack"]
    url: SecretStr = Field(max_length=2000, description="https, and no private address unless the operator allows it.")
    secret: SecretStr | None = Field(None, description="`whsec_` and base64; one is made where it is left out.")
    minimum_severity: Severity = "warning"
    events: list[str] | None = Field(None, min_length=1, description="Left out: all events.")


class ChannelOut(BaseModel):
    """A channel without what is secret of it: of the address only the host."""

    id: int
    project: str
    name: str
    kind: str
    host: str
    minimum_severity: Severity
    events: list[str] | None
    disabled_reason: str | None
    created_at: datetime

    @classmethod
    def of(cls, channel: NotificationChannel, project: str) -> ChannelOut:
        """Reads it off the row."""
        return cls(
            id=channel.id,
            project=project,
            name=channel.name,
            kind=channel.kind,
            host=urlsplit(channel.url).hostname or "",
            minimum_severity=channel.minimum_severity,
            events=channel.events,
            disabled_reason=channel.disabled_reason,
            created_at=channel.created_at,
        )


class ChannelCreated(ChannelOut):
    """The answer to the making, the only one with the secret; Slack has none."""

    secret: str | None


class NotificationOut(BaseModel):
    """A message and what became of it."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    message_id: str
    event: str
    severity: str
    state: str
    attempts: int
    detail: str | None
    next_attempt_at: datetime | None
    created_at: datetime
    sent_at: datetime | None
