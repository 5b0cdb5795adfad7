"""Table `github_report`: the outbox of what GitHub is to be told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Retried

REPORT_STATES = ("pending", "sent", "recorded", "failed")


class GithubReport(Retried, Base):
    """One request to GitHub; `recorded` is kept here only: no credentials were set, or a newer one took its place."""

    __tablename__ = "github_report"
    __table_args__ = (
        UniqueConstraint("job_id", "kind", "phase"),
        CheckConstraint(f"state IN {REPORT_STATES}", name="state"),
        CheckConstraint("(job_id IS NULL) <> (pull_request_id IS NULL)", name="subject"),
    )

    job_id: Mapped[int | None] = mapped_column(ForeignKey("job.id"), index=True)
    """What a status or a check run is about."""
    pull_request_id: Mapped[int | None] = mapped_column(ForeignKey("pull_request.id"), index=True)
    """What a comment or a reaction is about."""
    kind: Mapped[str]
    """commit_status, check_run, comment or reaction."""
    phase: Mapped[str]
    """created, ready, approved, started, decided, accepted-N (by override N) or cancelled; of comments: refreshed."""
    method: Mapped[str]
    path: Mapped[str]
    """Where such a thing is created, below the API's base URL: `/repos/…`."""
    payload: Mapped[dict[str, Any]]
    """The whole state to be shown."""
    check_run_id: Mapped[int | None] = mapped_column(BigInteger)
    """GitHub's number of the check run that this report created or changed."""
    comment_id: Mapped[int | None] = mapped_column(BigInteger)
    """GitHub's number of the comment that this report created or changed."""
    detail: Mapped[str | None]
    """What GitHub answered, or why it was not sent."""
    sent_at: Mapped[datetime | None]
