"""The service's tasks by the names that messages call them."""

from __future__ import annotations

from collections.abc import Callable

from gprojci_service import queue
from gprojci_service.bisections.tasks import advance
from gprojci_service.comments.tasks import carry_out_comment
from gprojci_service.gate.tasks import decide
from gprojci_service.github.tasks import report_to_github
from gprojci_service.jobs.tasks import reap
from gprojci_service.notifications.tasks import notify
from gprojci_service.regressions.tasks import watch
from gprojci_service.results.tasks import thin_reports
from gprojci_service.schedules.tasks import run_schedules
from gprojci_service.webhooks.tasks import process_delivery, reconcile

TASKS: dict[str, Callable[..., None]] = {
    queue.PROCESS_DELIVERY: process_delivery,
    queue.DECIDE: decide,
    queue.REPORT_TO_GITHUB: report_to_github,
    queue.CARRY_OUT_COMMENT: carry_out_comment,
    queue.REAP: reap,
    queue.RECONCILE: reconcile,
    queue.WATCH: watch,
    queue.NOTIFY: notify,
    queue.ADVANCE: advance,
    queue.RUN_SCHEDULES: run_schedules,
    queue.THIN_REPORTS: thin_reports,
}
