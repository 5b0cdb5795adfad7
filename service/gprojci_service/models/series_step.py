"""Table `series_step`: where a series of a default branch changed its level."""

from __future__ import annotations

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base


class SeriesStep(Base):
    """A step as it was found after the newest result, kept for the pages: peers and the anchor have theirs too, which
    open no regression."""

    __tablename__ = "series_step"

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True)
    commit_id: Mapped[int] = mapped_column(ForeignKey("commit.id"), primary_key=True)
    """The first commit at the new level."""
    change: Mapped[float]
    """New over old level, minus one."""
