"""Table `training_run`: one backend trained with one seed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class TrainingRun(Keyed, Base):
    """A run as far as it was reported; each report of it replaces the one before."""

    __tablename__ = "training_run"
    __table_args__ = (UniqueConstraint("training_id", "backend", "seed"),)

    training_id: Mapped[int] = mapped_column(ForeignKey("training.id"))
    backend: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    begun_at: Mapped[datetime]
    """`created_at` of the report it came in: of two reports the one of the later start counts, then the longer one."""
    steps: Mapped[int] = mapped_column(BigInteger)
    facts: Mapped[dict[str, Any]]
    """All of the contract's `TrainingRun` but the series, and `final_dq_error`."""
    body: Mapped[bytes] = mapped_column(deferred=True)
    """The whole run as the contract has it, JSON compressed with zlib: nothing in it is searched."""
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    """Of that JSON, before it is compressed."""
    content_hash: Mapped[str]
    sent_at: Mapped[datetime] = mapped_column(default=now)
