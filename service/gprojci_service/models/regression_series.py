"""Table `regression_series`: one series that a regression shows in."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class RegressionSeries(Keyed, Base):
    """A step of a series, or a limit that it broke; the same one is recorded once."""

    __tablename__ = "regression_series"
    __table_args__ = (UniqueConstraint("series_id", "first_bad_id"),)

    regression_id: Mapped[int] = mapped_column(ForeignKey("regression.id"), index=True)
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))
    last_good_id: Mapped[int | None] = mapped_column(ForeignKey("commit.id"))
    first_bad_id: Mapped[int] = mapped_column(ForeignKey("commit.id"))
    before: Mapped[float | None]
    """Level before the step, in the unit of the series; None where only a limit was broken."""
    after: Mapped[float]
    """Level after it, or the value that broke the limit."""
    noise: Mapped[float | None]
    """Standard deviation of a point before the step, a fraction."""
    limit: Mapped[float | None]
    """The gate's limit, where it was broken."""
    recovered_by_sha: Mapped[str | None]
    """The commit at which the series stepped back, or kept its limit again."""
    created_at: Mapped[datetime] = mapped_column(default=now)
