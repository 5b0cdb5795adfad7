"""Table `sample`: one measured value of a series."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

CURVE = ("commit_id", "revision", "value", "low", "high")


class Sample(Keyed, Base):
    """One value at one commit, with its interval where there is one."""

    __tablename__ = "sample"
    __table_args__ = (
        UniqueConstraint("series_id", "report_id", "revision"),
        # A curve is read from here alone: in the table its values lie as far apart as their reports.
        Index("ix_sample_curve", "series_id", "report_id", postgresql_include=CURVE),
    )

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    report_id: Mapped[int] = mapped_column(ForeignKey("report.id"), index=True)
    commit_id: Mapped[int] = mapped_column(ForeignKey("commit.id"), index=True)
    """The commit measured; for a peer the head commit of its session."""
    revision: Mapped[str]
    """head, base or ruler: whose value it is within its session."""
    value: Mapped[float]
    """In the unit of the series."""
    low: Mapped[float | None]
    high: Mapped[float | None]
    count: Mapped[int]
    """How many slices or timings it is the median of."""
    measured_at: Mapped[datetime] = mapped_column(default=now)
