"""Table `notification`: the outbox of what channels are to be told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

NOTIFICATION_STATES = ("pending", "sent", "failed")


class Notification(Keyed, Base):
    """One message to one channel, as it is sent: the same body and `message_id` at every try."""

    __tablename__ = "notification"
    __table_args__ = (CheckConstraint(f"state IN {NOTIFICATION_STATES}", name="state"),)

    channel_id: Mapped[int] = mapped_column(ForeignKey("notification_channel.id", ondelete="CASCADE"), index=True)
    message_id: Mapped[str] = mapped_column(unique=True)
    """The receiver knows a repetition by it."""
    event: Mapped[str]
    severity: Mapped[str]
    body: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(default="pending", index=True)
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime | None]
    """Not to be sent before; while it is being sent: when the sender is given up for lost."""
    detail: Mapped[str | None]
    """What the receiver answered, or why it could not be sent."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    sent_at: Mapped[datetime | None]
