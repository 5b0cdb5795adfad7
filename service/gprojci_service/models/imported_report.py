"""Table `imported_report`: a suite report that no job of this service measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class ImportedReport(Keyed, Base):
    """A report that somebody measured by hand and imported to be shown; never a result, never gated."""

    __tablename__ = "imported_report"

    content_hash: Mapped[str] = mapped_column(unique=True)
    """`sha256:…` over the report's canonical JSON: the same report is kept once."""
    title: Mapped[str]
    schema_version: Mapped[int]
    body: Mapped[dict[str, Any]]
    """The report as `gprojci_suite.contract.report` defines it."""
    hardware: Mapped[str]
    """Hardware class it was measured on, as the report says."""
    imported_at: Mapped[datetime] = mapped_column(default=now)
