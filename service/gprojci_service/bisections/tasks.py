"""Task: a bisection goes on."""

from __future__ import annotations

from gprojci_service.bisections import service
from gprojci_service.context import Context


def advance(context: Context, bisection_id: int) -> None:
    """Takes in the job that has ended and asks for what is needed next."""
    with context.database.session(writes=True) as session:
        service.advance(session, context.settings, bisection_id)
