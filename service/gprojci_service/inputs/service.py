"""Decisions about input sets: which are known, from the reports that used them."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.inputs import repository
from gprojci_service.models import InputSet, now


def record(session: Session, entries: list[dict[str, Any]]) -> None:
    """Keeps the description of every input set that a report's `inputs` lists."""
    for entry in entries:
        known = repository.by_hash(session, entry["content_hash"])
        if known is None:
            known = InputSet(content_hash=entry["content_hash"], name=entry["input"], description=entry)
            session.add(known)
            session.flush()
        known.name, known.description, known.last_seen_at = entry["input"], entry, now()
