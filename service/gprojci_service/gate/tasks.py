"""Task: decide a job."""

from __future__ import annotations

from gprojci_service.context import Context
from gprojci_service.gate import service


def decide(context: Context, job_id: int) -> None:
    """Judges the job's report, stores the evidence and has GitHub told."""
    with context.database.session(writes=True) as session:
        service.decide_job(session, context.settings, job_id)
