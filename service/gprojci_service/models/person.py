"""Table `person`: who has signed in with GitHub. What they may do is asked of GitHub when they do it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Person(Keyed, Base):
    """A GitHub account; no credential of it is kept."""

    __tablename__ = "person"

    github_id: Mapped[int] = mapped_column(BigInteger, unique=True)
    """GitHub's number of the account, which survives a rename."""
    login: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)
    signed_in_at: Mapped[datetime] = mapped_column(default=now)
    blocked_at: Mapped[datetime | None]
    """Since when the account may not sign in and has no session."""
