"""When something that met a passing fault is tried again, and what is due for it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from sqlalchemy import Select, or_, select

from gprojci_service.models.base import Retried

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 5.0, 900.0
_RANDOM = random.SystemRandom()


def next_attempt(moment: datetime, attempts: int, not_before: datetime | None) -> datetime:
    """When to try again: twice as late each time, up to a quarter of an hour, and not before the other side allows it.

    Chance spreads what was held up together, so that it does not come back together.
    """
    delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(attempts - 1, 20), LONGEST_DELAY_SECONDS)
    spread = timedelta(seconds=delay * _RANDOM.uniform(0.5, 1.0))
    return moment + spread if not_before is None else max(not_before, moment) + spread


def due(kind: type[Retried], created_before: datetime, moment: datetime) -> Select[int]:
    """Numbers of the pending rows whose message may be lost or whose time to be tried again has come."""
    return (
        select(kind.id)
        .where(kind.state == "pending", kind.created_at < created_before)
        .where(or_(kind.next_attempt_at.is_(None), kind.next_attempt_at <= moment))
        .limit(1000)
    )
