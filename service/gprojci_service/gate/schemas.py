"""What the verdict endpoints give."""

from __future__ import annotations

from gprojci_service.jobs.schemas import VerdictOut


class VerdictListed(VerdictOut):
    """A verdict in a list."""

    job_id: int
    project_id: int
    head_sha: str
