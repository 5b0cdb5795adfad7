"""Table `regression_event`: the history of a regression, with what people wrote to it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now

REGRESSION_EVENTS = ("opened", "series", "range", "state", "owner", "comment")


class RegressionEvent(Keyed, Base):
    """Something that happened to a regression; rows are only ever added."""

    __tablename__ = "regression_event"
    __table_args__ = (CheckConstraint(f"kind IN {REGRESSION_EVENTS}", name="kind"),)

    regression_id: Mapped[int] = mapped_column(ForeignKey("regression.id"), index=True)
    kind: Mapped[str]
    """opened; series (another one shows it); range (its commits are known better); state; owner; comment."""
    before: Mapped[str | None]
    """State or owner before."""
    after: Mapped[str | None]
    text: Mapped[str | None]
    """The comment, the reason, or what was found."""
    author: Mapped[str]
    """Name of the token, or `gprojci` for what the service found by itself."""
    created_at: Mapped[datetime] = mapped_column(default=now)
