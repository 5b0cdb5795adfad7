"""Table `notification_channel`: where a project's events are sent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

CHANNEL_KINDS = ("webhook", "slack")
SEVERITIES = ("info", "warning", "critical")


class NotificationChannel(Keyed, Base):
    """An address that asked for events. Without one nothing is sent."""

    __tablename__ = "notification_channel"
    __table_args__ = (
        UniqueConstraint("project_id", "name"),
        CheckConstraint(f"kind IN {CHANNEL_KINDS}", name="kind"),
        CheckConstraint(f"minimum_severity IN {SEVERITIES}", name="minimum_severity"),
    )

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    kind: Mapped[str]
    """webhook: signed JSON; slack: Slack's format for incoming webhooks, which others take too."""
    url: Mapped[str]
    """Of Slack it is a secret itself; shown by its host alone."""
    secret: Mapped[str]
    """`whsec_` and base64: what deliveries are signed with."""
    minimum_severity: Mapped[str]
    events: Mapped[list[Any] | None]
    """Names of events; None is all of them."""
    disabled_reason: Mapped[str | None]
    """Why nothing is sent any more: the receiver answered 410 Gone."""
    created_at: Mapped[datetime] = mapped_column(default=now)
