"""Task: send one report of the outbox to GitHub."""

from __future__ import annotations

from gprojci_service.context import Context
from gprojci_service.github import repository, service
from gprojci_service.github.client import Answer, connect


def report_to_github(context: Context, report_id: int) -> None:
    """Sends it outside of any transaction, then notes the answer."""
    with context.database.session(writes=False) as session:
        report = repository.by_id(session, report_id)
        if report is None or report.state != "pending":
            return
        overtaken = service.superseded(session, report)
    if overtaken:
        answer = Answer("recorded", "not sent: the verdict was there before it")
    else:
        answer = connect(context.settings).post(report.kind, report.path, report.payload)
    with context.database.session(writes=True) as session:
        service.record_answer(session, report_id, answer)
