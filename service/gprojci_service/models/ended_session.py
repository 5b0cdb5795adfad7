"""Table `ended_session`: sessions that were signed out before their time, so that a copied cookie is none."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed


class EndedSession(Keyed, Base):
    """A session that nobody may use any more; the row may go once the cookie has expired by itself."""

    __tablename__ = "ended_session"

    mark: Mapped[str] = mapped_column(unique=True)
    """SHA-256 of the mark that the session's forms carry, hex."""
    expires_at: Mapped[datetime] = mapped_column(index=True)
