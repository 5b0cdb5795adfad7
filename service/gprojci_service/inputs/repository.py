"""Every query about input sets."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import InputSet


def by_hash(session: Session, content_hash: str) -> InputSet | None:
    return session.scalar(select(InputSet).where(InputSet.content_hash == content_hash))


def all_inputs(session: Session) -> Sequence[InputSet]:
    return session.scalars(select(InputSet).order_by(InputSet.name, InputSet.id)).all()
