"""Task: thin old reports."""

from __future__ import annotations

from gprojci_service.context import Context
from gprojci_service.models import now
from gprojci_service.results import retention


def thin_reports(context: Context) -> None:
    """Thins every report that is old enough, some in each transaction."""
    while True:
        with context.database.session(writes=True) as session:
            if not retention.thin(session, context.settings, now()):
                return
