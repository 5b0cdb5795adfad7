"""Table `webhook_delivery`: every authentic webhook, stored once by its delivery id."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class WebhookDelivery(Keyed, Base):
    """One delivery whose signature was right."""

    __tablename__ = "webhook_delivery"

    delivery_id: Mapped[str] = mapped_column(unique=True)
    """GitHub's `X-GitHub-Delivery`."""
    event: Mapped[str]
    action: Mapped[str | None]
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(default="received", index=True)
    """received, processed, ignored or failed."""
    detail: Mapped[str | None]
    """What became of it, in words."""
    received_at: Mapped[datetime] = mapped_column(default=now, index=True)
    processed_at: Mapped[datetime | None]
