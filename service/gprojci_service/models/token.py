"""Table `token`: bearer tokens of workers and API users, stored hashed."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

SCOPES = ("worker", "read", "write", "admin")


class Token(Keyed, Base):
    """A token; the secret itself is shown once, at its creation, and never stored."""

    __tablename__ = "token"
    __table_args__ = (CheckConstraint(f"scope IN {SCOPES}", name="scope"),)

    name: Mapped[str]
    scope: Mapped[str]
    """worker: the worker API alone. read: what is open where reading is. write: also what a user may change.
    admin: also tokens, the audit log, the App's set-up and the removal of projects."""
    hash: Mapped[str] = mapped_column(unique=True)
    """SHA-256 of the secret, hex."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
