"""Table `worker`: a process on a measuring host, known by its name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Worker(Keyed, Base):
    """A worker as it last said hello."""

    __tablename__ = "worker"

    name: Mapped[str] = mapped_column(unique=True)
    hardware: Mapped[str]
    """Hardware class of the jobs it claims."""
    device: Mapped[str]
    """cpu or cuda."""
    device_name: Mapped[str]
    boot_id: Mapped[str]
    """Which start of the process; another one under the same name orphans the attempts of the former."""
    environment: Mapped[dict[str, Any]]
    draining_at: Mapped[datetime | None]
    """Since when it gets no new work; what it measures it finishes."""
    last_seen_at: Mapped[datetime] = mapped_column(default=now)
    created_at: Mapped[datetime] = mapped_column(default=now)
