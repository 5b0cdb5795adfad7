"""Table `notification`: the outbox of what channels are to be told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Retried

NOTIFICATION_STATES = ("pending", "sent", "failed")


class Notification(Retried, Base):
    """One message to one channel, as it is sent: the same body and `message_id` at every try."""

    __tablename__ = "notification"
    __table_args__ = (CheckConstraint(f"state IN {NOTIFICATION_STATES}", name="state"),)

    channel_id: Mapped[int] = mapped_column(ForeignKey("notification_channel.id", ondelete="CASCADE"), index=True)
    message_id: Mapped[str] = mapped_column(unique=True)
    """The receiver knows a repetition by it."""
    event: Mapped[str]
    severity: Mapped[str]
    body: Mapped[dict[str, Any]]
    detail: Mapped[str | None]
    """What the receiver answered, or why it could not be sent."""
    sent_at: Mapped[datetime | None]
