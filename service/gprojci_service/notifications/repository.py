"""Every query about channels and their outbox."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gprojci_service import retries
from gprojci_service.models import Notification, NotificationChannel


def channel(session: Session, channel_id: int) -> NotificationChannel | None:
    return session.get(NotificationChannel, channel_id)


def channel_by_name(session: Session, project_id: int, name: str) -> NotificationChannel | None:
    return session.scalar(
        select(NotificationChannel).where(
            NotificationChannel.project_id == project_id, NotificationChannel.name == name
        )
    )


def channels(session: Session, project_id: int) -> Sequence[NotificationChannel]:
    return session.scalars(
        select(NotificationChannel)
        .where(NotificationChannel.project_id == project_id)
        .order_by(NotificationChannel.name)
    ).all()


def remove(session: Session, channel: NotificationChannel) -> None:
    session.execute(delete(Notification).where(Notification.channel_id == channel.id))
    session.delete(channel)


def locked(session: Session, notification_id: int) -> Notification | None:
    return session.scalar(
        select(Notification)
        .where(Notification.id == notification_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def of_channel(session: Session, channel_id: int, limit: int) -> Sequence[Notification]:
    """Newest first."""
    return session.scalars(
        select(Notification).where(Notification.channel_id == channel_id).order_by(Notification.id.desc()).limit(limit)
    ).all()


def due(session: Session, created_before: datetime, moment: datetime) -> Sequence[int]:
    """Pending messages, oldest first, whose hint may be lost or whose time to be tried again has come."""
    return session.scalars(retries.due(Notification, created_before, moment).order_by(Notification.id)).all()
