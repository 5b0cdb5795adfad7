"""Task: process a stored webhook."""

from __future__ import annotations

from gprojci_service.context import Context
from gprojci_service.webhooks import service


def process_delivery(context: Context, row_id: int) -> None:
    """Does what the stored delivery asks for."""
    with context.database.session(writes=True) as session:
        service.process(session, context.settings, row_id)
