"""Table `log_chunk`: what an attempt printed, in the order of its sequence numbers."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class LogChunk(Keyed, Base):
    """Some lines of an attempt's log; a chunk sent twice is stored once."""

    __tablename__ = "log_chunk"
    __table_args__ = (UniqueConstraint("attempt_id", "sequence"),)

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id"))
    sequence: Mapped[int]
    text: Mapped[str]
    received_at: Mapped[datetime] = mapped_column(default=now)
