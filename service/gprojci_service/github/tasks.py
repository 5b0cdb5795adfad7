"""Task: send one report of the outbox to GitHub."""

from __future__ import annotations

from gprojci_service.context import Context
from gprojci_service.github import outbox


def report_to_github(context: Context, report_id: int) -> None:
    """Sends it outside of any transaction, then notes the answer."""
    with context.database.session(writes=True) as session:
        report = outbox.take(session, report_id)
    if report is None:
        return
    answer = context.github.send(report)
    with context.database.session(writes=True) as session:
        outbox.record_answer(session, report_id, answer)
