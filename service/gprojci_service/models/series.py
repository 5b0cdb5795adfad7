"""Table `series`: the identity of a curve over commits."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gprojci_service.models.base import Base, Keyed, now


class Series(Keyed, Base):
    """(backend, case, metric, hardware, ruler revision) of a project; samples of two series are never mixed."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("project_id", "backend", "case", "metric", "hardware", "ruler_revision"),)

    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), index=True)
    backend: Mapped[str]
    case: Mapped[str]
    """Input set or shape × dtype × mask."""
    metric: Mapped[str]
    """dq_error, dk_error, dv_error, o_error (medians over slices), their `_worst`, dq_symmetry, forward_seconds,
    backward_seconds, forward_backward_seconds, step_seconds, `…_ratio_anchor`, and peak_memory."""
    unit: Mapped[str]
    """fraction, seconds, ratio or bytes."""
    hardware: Mapped[str]
    """The hardware class as the report's environment names it."""
    ruler_revision: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(default=now)
