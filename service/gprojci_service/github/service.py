"""What GitHub is told, and when: a pending status with the job, a status and a check run with the verdict.

Sources: GitHub's REST documentation, "Create a commit status" and "Create a check run".
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.database import send_after_commit
from gprojci_service.github import repository
from gprojci_service.github.client import Answer
from gprojci_service.models import GithubReport, Job, Project, Verdict, now
from gprojci_service.queue import REPORT_TO_GITHUB
from gprojci_service.settings import Settings

# A neutral verdict does not block a merge: the gate could not tell, and says so in the description.
STATUS_OF = {"pass": "success", "fail": "failure", "neutral": "success", "error": "error"}
CONCLUSION_OF = {"pass": "success", "fail": "failure", "neutral": "neutral", "error": "action_required"}
MAX_ATTEMPTS = 50


def status_context(job: Job) -> str:
    """Name of the commit status; one for each hardware class, so that a branch rule can require it."""
    return f"gprojci/{job.hardware}"


def announce(session: Session, settings: Settings, project: Project, job: Job) -> None:
    """Has a pending status set when a job is made, so that a job that never ran is not green."""
    waiting = job.state == "awaiting_approval"
    _post_status(
        session,
        settings,
        project,
        job,
        "created",
        "pending",
        "waits for a maintainer to approve this commit"
        if waiting
        else "queued: accuracy and throughput will be measured",
    )


def conclude(session: Session, settings: Settings, project: Project, job: Job, verdict: Verdict, table: str) -> None:
    """Has the verdict posted as a status and as a check run with its table."""
    _post_status(session, settings, project, job, "decided", STATUS_OF[verdict.verdict], verdict.summary)
    _enqueue(
        session,
        job,
        "check_run",
        "decided",
        f"/repos/{project.name}/check-runs",
        {
            "name": f"GProj CI ({job.hardware})",
            "head_sha": job.head_sha,
            "status": "completed",
            "conclusion": CONCLUSION_OF[verdict.verdict],
            "completed_at": verdict.decided_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "details_url": _job_url(settings, job),
            "external_id": str(job.id),
            "output": {"title": verdict.summary, "summary": table[:65535]},
        },
    )


def record_answer(session: Session, report_id: int, answer: Answer) -> None:
    """Notes in the outbox what became of a report: a passing fault stays pending and is sent again by the reaper."""
    report = repository.by_id(session, report_id)
    if report is None or report.state != "pending":
        return
    report.attempts += 1
    report.detail = answer.detail
    if answer.outcome == "sent":
        report.state, report.sent_at = "sent", now()
    elif answer.outcome == "recorded":
        report.state = "recorded"
    elif answer.outcome == "refused" or report.attempts >= MAX_ATTEMPTS:
        report.state = "failed"


def superseded(session: Session, report: GithubReport) -> bool:
    """Whether a later report of the same job makes this one wrong to send."""
    return report.phase == "created" and any(
        other.phase == "decided" for other in repository.of_job(session, report.job_id)
    )


def _post_status(
    session: Session, settings: Settings, project: Project, job: Job, phase: str, state: str, text: str
) -> None:
    _enqueue(
        session,
        job,
        "commit_status",
        phase,
        f"/repos/{project.name}/statuses/{job.head_sha}",
        {
            "state": state,
            "target_url": _job_url(settings, job),
            "description": text[:140],
            "context": status_context(job),
        },
    )


def _enqueue(session: Session, job: Job, kind: str, phase: str, path: str, payload: dict[str, Any]) -> None:
    report = GithubReport(job_id=job.id, kind=kind, phase=phase, method="POST", path=path, payload=payload)
    session.add(report)
    session.flush()
    send_after_commit(session, REPORT_TO_GITHUB, report.id)


def _job_url(settings: Settings, job: Job) -> str:
    return f"{settings.public_url}/jobs/{job.id}"
