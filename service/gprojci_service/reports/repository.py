"""Every query about imported reports."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
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


def search(
    session: Session, text: str, hardware: str, *, by_title: bool, offset: int, limit: int
) -> Sequence[ImportedReport]:
    """Without their bodies; whose titles have all words of a text, of a hardware class where one is given."""
    query = select(ImportedReport).options(_WITHOUT_BODY)
    for word in text.split()[:5]:
        query = query.where(ImportedReport.title.icontains(word, autoescape=True))
    if hardware:
        query = query.where(ImportedReport.hardware == hardware)
    order = (func.lower(ImportedReport.title), ImportedReport.id) if by_title else (ImportedReport.id.desc(),)
    return session.scalars(query.order_by(*order).offset(offset).limit(limit)).all()


def hardware(session: Session) -> list[str]:
    """Hardware classes that any of them is of."""
    return list(session.scalars(select(ImportedReport.hardware).distinct().order_by(ImportedReport.hardware)))
