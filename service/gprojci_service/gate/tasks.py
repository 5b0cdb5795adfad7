"""Task: decide a job."""

from __future__ import annotations

from gprojci_service.bisections import service as bisections
from gprojci_service.context import Context
from gprojci_service.gate import service


def decide(context: Context, job_id: int) -> None:
    """Judges the job's report, stores the evidence, has GitHub told, and the bisections that wait for it go on."""
    with context.database.session(writes=True) as session:
        service.decide_job(session, context.settings, job_id)
        bisections.wake(session, job_id)
