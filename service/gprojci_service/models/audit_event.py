"""Table `audit_event`: who asked for which change, and when. Rows are only ever added."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class AuditEvent(Keyed, Base):
    """One change that was asked for and made."""

    __tablename__ = "audit_event"
    __table_args__ = (
        Index("ix_audit_event_actor", "actor", "id"),
        Index("ix_audit_event_action", "action", "id"),
        Index("ix_audit_event_project", "project", "id"),
    )

    at: Mapped[datetime] = mapped_column(default=now, index=True)
    actor: Mapped[str]
    """Name of the token, or login of the person."""
    actor_kind: Mapped[str]
    """How that is known: token, session, github (a comment there), command (a command on the database itself)."""
    action: Mapped[str]
    """Name of the endpoint (`approve_job`) or of the command (`/gprojci approve`)."""
    project: Mapped[str | None]
    """Full name at that time; kept when the project goes."""
    detail: Mapped[dict[str, Any]]
    """Path, query and body, without secrets, each value at most 200 characters."""
    address: Mapped[str | None]
