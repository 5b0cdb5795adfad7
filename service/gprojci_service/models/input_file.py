"""Table `input_file`: the files of input sets that somebody uploaded."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class InputFile(Keyed, Base):
    """An uploaded input set; the file itself lies under GPROJCI_UPLOAD_DIR, named by the content hash."""

    __tablename__ = "input_file"

    name: Mapped[str] = mapped_column(unique=True)
    """What manifests ask for it by. It never changes its content: series are kept by this name."""
    content_hash: Mapped[str] = mapped_column(unique=True)
    """`sha256:…` over the tensors' canonical content, as reports and the ruler have it."""
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    description: Mapped[dict[str, Any]]
    """As an entry of a report's `inputs`; `statistics` are empty until somebody has computed them."""
    project_id: Mapped[int | None] = mapped_column(ForeignKey("project.id"), index=True)
    """The project it was captured for; every project may use it."""
    uploaded_by: Mapped[str]
    """Name of the token."""
    uploaded_at: Mapped[datetime] = mapped_column(default=now)
