"""Table `project`: a repository under test."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Project(Keyed, Base):
    """A repository under test, known by its full name `owner/name`."""

    __tablename__ = "project"

    name: Mapped[str] = mapped_column(unique=True)
    """Full name, `owner/name`."""
    github_id: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    """GitHub's number of the repository; survives a rename."""
    clone_url: Mapped[str]
    html_url: Mapped[str | None]
    default_branch: Mapped[str] = mapped_column(default="main")
    private: Mapped[bool] = mapped_column(default=False)
    installation_id: Mapped[int | None] = mapped_column(BigInteger)
    """GitHub App installation that the last webhook named."""
    hardware: Mapped[list[Any] | None]
    """Hardware classes a job is made for; None takes the service's setting."""
    created_at: Mapped[datetime] = mapped_column(default=now)
    archived_at: Mapped[datetime | None]
