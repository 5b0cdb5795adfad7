"""Table `report`: what an attempt returned, stored once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Report(Keyed, Base):
    """A suite report, whole; at most one of a job is its accepted result, a late one is kept as evidence."""

    __tablename__ = "report"
    __table_args__ = (
        UniqueConstraint("attempt_id"),
        Index("ix_report_fingerprint", "fingerprint"),
        Index(
            "uq_report_accepted",
            "job_id",
            unique=True,
            postgresql_where=text("accepted"),
            sqlite_where=text("accepted = 1"),
        ),
    )

    job_id: Mapped[int] = mapped_column(ForeignKey("job.id"), index=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id"))
    fencing_token: Mapped[int]
    accepted: Mapped[bool]
    """False for the report of an attempt that had lost its lease."""
    schema_version: Mapped[int]
    fingerprint: Mapped[str | None]
    """Hash of everything that the measurement depends on: builds, spec, inputs, ruler, device and driver."""
    taken_from_id: Mapped[int | None] = mapped_column(ForeignKey("report.id"))
    """The report whose measurement this is, where the same builds had been measured before."""
    body: Mapped[dict[str, Any]]
    """The report as `gprojci_suite.contract.report` defines it."""
    manifest_head: Mapped[str | None]
    """Text of `gprojci.toml` at the head commit."""
    manifest_base: Mapped[str | None]
    """Text of `gprojci.toml` at the base commit: the gate's policy is read from here."""
    received_at: Mapped[datetime] = mapped_column(default=now)
    thinned_at: Mapped[datetime | None]
    """When its single values were removed, see `results/retention.py`."""
