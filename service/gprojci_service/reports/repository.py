"""Every query about imported reports."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from gprojci_service.models import ImportedReport

_WITHOUT_BODY = defer(ImportedReport.body, raiseload=True)


def by_id(session: Session, report_id: int, *, whole: bool) -> ImportedReport | None:
    return session.get(ImportedReport, report_id, options=() if whole else (_WITHOUT_BODY,))


def by_hash(session: Session, content_hash: str) -> ImportedReport | None:
    return session.scalar(select(ImportedReport).where(ImportedReport.content_hash == content_hash))


def newest(session: Session, limit: int) -> Sequence[ImportedReport]:
    """Without their bodies, which are large."""
    query = select(ImportedReport).options(_WITHOUT_BODY)
    return session.scalars(query.order_by(ImportedReport.id.desc()).limit(limit)).all()
