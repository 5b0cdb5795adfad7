"""Task: the reaper, which finds what was lost: leases, messages, decisions, searches, comments, notices."""

from __future__ import annotations

from datetime import timedelta

from gprojci_service.bisections import repository as bisections
from gprojci_service.comments import repository as comments
from gprojci_service.context import Context
from gprojci_service.database import send_after_commit
from gprojci_service.github import repository as github
from gprojci_service.jobs import repository, service
from gprojci_service.models import now
from gprojci_service.notifications import repository as notifications
from gprojci_service.queue import (
    ADVANCE,
    CARRY_OUT_COMMENT,
    DECIDE,
    MEASURE,
    NOTIFY,
    PROCESS_DELIVERY,
    REPORT_TO_GITHUB,
    SERVICE_QUEUE,
    measure_queue,
)
from gprojci_service.webhooks import repository as webhooks


def reap(context: Context) -> None:
    """Gives up expired attempts, and sends again whatever message no queue holds any more."""
    with context.database.session(writes=True) as session:
        service.reap(session, context.settings, now())
    with context.database.session(writes=False) as session:
        overdue = now() - timedelta(seconds=context.settings.reaper_seconds)
        if context.queue.length(SERVICE_QUEUE) == 0:
            for row_id in webhooks.unprocessed_before(session, overdue):
                send_after_commit(session, PROCESS_DELIVERY, row_id)
            for job_id in repository.undecided(session):
                send_after_commit(session, DECIDE, job_id)
            for row_id in comments.due(session, overdue, now()):
                send_after_commit(session, CARRY_OUT_COMMENT, row_id)
            for bisection_id in bisections.left_behind(session):
                send_after_commit(session, ADVANCE, bisection_id)
            for report_id in github.due(session, overdue, now()):
                send_after_commit(session, REPORT_TO_GITHUB, report_id)
            for notification_id in notifications.due(session, overdue, now()):
                send_after_commit(session, NOTIFY, notification_id)
        for hardware, job_ids in repository.queued_by_hardware(session).items():
            if context.queue.length(measure_queue(hardware)) == 0:
                for job_id in job_ids[:50]:
                    send_after_commit(session, MEASURE, job_id, queue=measure_queue(hardware))
