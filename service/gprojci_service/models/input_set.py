"""Table `input_set`: named captured or synthetic inputs, known by content hash."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class InputSet(Keyed, Base):
    """An input set that some report used."""

    __tablename__ = "input_set"

    content_hash: Mapped[str] = mapped_column(unique=True)
    """`sha256:…` over the tensors' canonical content."""
    name: Mapped[str] = mapped_column(index=True)
    description: Mapped[dict[str, Any]]
    """The entry of the report's `inputs`: layers, shapes, statistics, provenance."""
    first_seen_at: Mapped[datetime] = mapped_column(default=now)
    last_seen_at: Mapped[datetime] = mapped_column(default=now)
