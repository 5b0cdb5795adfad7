"""Table `github_report`: the outbox of what GitHub is to be told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

REPORT_STATES = ("pending", "sent", "recorded", "failed")


class GithubReport(Keyed, Base):
    """One request to GitHub; `recorded` means that no credentials were set, so it was kept here only."""

    __tablename__ = "github_report"
    __table_args__ = (
        UniqueConstraint("job_id", "kind", "phase"),
        CheckConstraint(f"state IN {REPORT_STATES}", name="state"),
    )

    job_id: Mapped[int] = mapped_column(ForeignKey("job.id"), index=True)
    kind: Mapped[str]
    """commit_status or check_run."""
    phase: Mapped[str]
    """created or decided."""
    method: Mapped[str]
    path: Mapped[str]
    """Below the API's base URL: `/repos/…`."""
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(default="pending", index=True)
    attempts: Mapped[int] = mapped_column(default=0)
    detail: Mapped[str | None]
    """What GitHub answered, or why it was not sent."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    sent_at: Mapped[datetime | None]
