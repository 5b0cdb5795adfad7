"""Every query about webhook deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import WebhookDelivery


def by_delivery_id(session: Session, delivery_id: str) -> WebhookDelivery | None:
    return session.scalar(select(WebhookDelivery).where(WebhookDelivery.delivery_id == delivery_id))


def locked(session: Session, row_id: int) -> WebhookDelivery | None:
    return session.scalar(select(WebhookDelivery).where(WebhookDelivery.id == row_id).with_for_update())


def unprocessed_before(session: Session, moment: datetime) -> Sequence[int]:
    return session.scalars(
        select(WebhookDelivery.id).where(WebhookDelivery.state == "received", WebhookDelivery.received_at < moment)
    ).all()
