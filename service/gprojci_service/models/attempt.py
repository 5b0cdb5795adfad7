"""Table `attempt`: one try of a job under one lease."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

ATTEMPT_STATES = ("running", "reported", "failed", "lost", "cancelled", "returned")


class Attempt(Keyed, Base):
    """One try; its fencing token grows with each attempt of the job, and only the newest may deliver the result."""

    __tablename__ = "attempt"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        CheckConstraint(f"state IN {ATTEMPT_STATES}", name="state"),
    )

    job_id: Mapped[int] = mapped_column(ForeignKey("job.id"), index=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)
    number: Mapped[int]
    """1 for the first try of the job; also its fencing token."""
    claim_id: Mapped[str] = mapped_column(unique=True)
    """Chosen by the worker; a repeated claim gets the same answer."""
    boot_id: Mapped[str | None]
    """Which start of the worker process holds it."""
    state: Mapped[str] = mapped_column(default="running", index=True)
    step: Mapped[str | None]
    """The step it is in: fetch, build, run, report."""
    steps: Mapped[list[Any]] = mapped_column(default=list)
    """`[{"name", "started_at", "seconds", "status"}]`, in order."""
    failure_kind: Mapped[str | None]
    manifest_problems: Mapped[list[Any] | None]
    """Where a build error is the head's manifest's: `[{"problem", "line", "column"}]`, as many as there are."""
    detail: Mapped[str | None]
    lease_expires_at: Mapped[datetime] = mapped_column(index=True)
    deadline_at: Mapped[datetime]
    """The hard limit, kept by the service whatever the heartbeats say; time without a lease does not count to it."""
    heartbeat_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime] = mapped_column(default=now)
    finished_at: Mapped[datetime | None]

    @property
    def fencing_token(self) -> int:
        """Grows by one with each attempt of the job."""
        return self.number
