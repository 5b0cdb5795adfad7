"""Every query about webhook deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from gprojci_service.database import is_postgresql
from gprojci_service.models import WebhookDelivery


def add(session: Session, **values: Any) -> int | None:
    """Stores a delivery and returns its number, or None where one of its delivery id is there already.

    One statement without a savepoint: bursts of webhooks are the service's most frequent writes.
    """
    insert = postgresql.insert if is_postgresql(session) else sqlite.insert
    statement = insert(WebhookDelivery).values(**values).on_conflict_do_nothing(index_elements=["delivery_id"])
    return session.scalar(statement.returning(WebhookDelivery.id))


def by_delivery_id(session: Session, delivery_id: str) -> WebhookDelivery | None:
    return session.scalar(select(WebhookDelivery).where(WebhookDelivery.delivery_id == delivery_id))


def locked(session: Session, row_id: int) -> WebhookDelivery | None:
    return session.scalar(select(WebhookDelivery).where(WebhookDelivery.id == row_id).with_for_update())


def unprocessed_before(session: Session, moment: datetime) -> Sequence[int]:
    return session.scalars(
        select(WebhookDelivery.id).where(WebhookDelivery.state == "received", WebhookDelivery.received_at < moment)
    ).all()
