"""Every query about webhook deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from gprojci_service.database import is_postgresql
from gprojci_service.models import WebhookDelivery
from gprojci_service.webhooks.schemas import Delivery


def add(session: Session, deliveries: Iterable[Delivery]) -> dict[str, int]:
    """Stores deliveries; the numbers of those whose delivery id was not there yet.

    One statement without a savepoint: bursts of webhooks are the service's most frequent writes. In the order of their
    ids, so that no two of them wait for each other.
    """
    insert = postgresql.insert if is_postgresql(session) else sqlite.insert
    statement = insert(WebhookDelivery).on_conflict_do_nothing(index_elements=["delivery_id"])
    rows = [
        {"delivery_id": one.delivery_id, "event": one.event, "action": one.action, "payload": one.payload}
        for one in sorted(deliveries, key=lambda one: one.delivery_id)
    ]
    added = session.execute(statement.returning(WebhookDelivery.delivery_id, WebhookDelivery.id), rows)
    return {row.delivery_id: row.id for row in added}


def unprocessed(session: Session, delivery_ids: Iterable[str]) -> dict[str, int]:
    """The numbers of those of the deliveries that wait to be processed."""
    found = select(WebhookDelivery.delivery_id, WebhookDelivery.id).where(
        WebhookDelivery.delivery_id.in_(delivery_ids), WebhookDelivery.state == "received"
    )
    return {row.delivery_id: row.id for row in session.execute(found)}


def locked(session: Session, row_id: int) -> WebhookDelivery | None:
    return session.scalar(select(WebhookDelivery).where(WebhookDelivery.id == row_id).with_for_update())


def unprocessed_before(session: Session, moment: datetime) -> Sequence[int]:
    return session.scalars(
        select(WebhookDelivery.id).where(WebhookDelivery.state == "received", WebhookDelivery.received_at < moment)
    ).all()
