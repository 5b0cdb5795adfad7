"""Table `training`: a story of training runs that differ in the attention backend alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Training(Keyed, Base):
    """What all runs of one name have in common; their reports may come from several processes, again and again."""

    __tablename__ = "training"

    name: Mapped[str] = mapped_column(unique=True)
    setup: Mapped[dict[str, Any]]
    """Model, data, optimisers and lengths, as the contract's `TrainingSetup`."""
    ruler: Mapped[dict[str, Any] | None]
    environment: Mapped[dict[str, Any] | None]
    hardware: Mapped[str | None]
    """Hardware class that the runs were trained on; None where unknown."""
    repro: Mapped[str]
    """Commands that train the same again, a line each."""
    begun_at: Mapped[datetime]
    """When the first run began, as the earliest of the reports says."""
    sent_at: Mapped[datetime] = mapped_column(default=now)
    """When something new came last."""
    sent_by: Mapped[str]
    """Name of the token it came with."""
