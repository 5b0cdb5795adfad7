"""What GitHub is told, and when: a status that is pending until the verdict, a check run that lives with its job.

Sources: GitHub's REST documentation, "Create a commit status", "Create a check run" and "Update a check run".
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.github import outbox, pull_request_comment, repository
from gprojci_service.github.markdown import cell
from gprojci_service.models import GithubReport, Job, Project, Verdict, now
from gprojci_service.models.job import SEARCH_KINDS
from gprojci_service.settings import Settings

# A neutral verdict does not block a merge: the gate could not tell, and says so in the description.
STATUS_OF = {"pass": "success", "fail": "failure", "neutral": "success", "error": "error"}
CONCLUSION_OF = {"pass": "success", "fail": "failure", "neutral": "neutral", "error": "action_required"}
WAITS = "waits for an approval of this commit"
QUEUED = "queued: accuracy and throughput will be measured"
SUMMARY_LIMIT = 65535


def status_context(job: Job) -> str:
    """Name of the commit status; one for each hardware class, so that a branch rule can require it."""
    return f"gprojci/{job.hardware}{_baseline(job)}"


def _baseline(job: Job) -> str:
    """A comparison with another base is called by it, so that it decides no merge."""
    return f" against {(job.base_sha or '')[:10]}" if job.kind == "baseline" else ""


def announce(session: Session, settings: Settings, project: Project, job: Job) -> None:
    """Tells of a new job: a pending status and a queued check run, so that a job that never ran is not green.

    An untrusted commit has a check run that asks for action, until somebody approves it.
    """
    waits = job.state == "awaiting_approval"
    why = f"{WAITS}: {job.detail}"
    _post_status(session, settings, project, job, "created", "pending", why if waits else QUEUED)
    if waits:
        state = _completed("action_required", why, _how_to_approve(settings, job), job.created_at)
    else:
        state = _open("queued", QUEUED)
    _post_check_run(session, settings, project, job, "created", state)
    pull_request_comment.refresh_for(session, job)


def _how_to_approve(settings: Settings, job: Job) -> str:
    lines = [
        f"Nothing of commit {job.head_sha} is built before somebody with write access has approved it, since "
        f"{cell(job.detail or '')}. Look at its changes, then approve it in one of these ways:",
        "",
        f"* here, with a comment: `/gprojci approve {job.head_sha}`",
        f"* on [the job's page]({_job_url(settings, job)}), signed in: *Approve this commit*",
        f"* on the command line: `gprojci job approve {job.id} {job.head_sha}`",
        "",
        "The approval is of this commit alone; a new push needs a new one.",
    ]
    return "\n".join(lines)


def approved(session: Session, job: Job) -> None:
    """Tells that an untrusted commit was approved: its check run waits for a worker as any other."""
    _update_check_run(session, job, "approved", _open("queued", QUEUED))
    pull_request_comment.refresh_for(session, job)


def started(session: Session, job: Job) -> None:
    """Tells that a worker has claimed the first attempt of a job."""
    state = _open("in_progress", "accuracy and throughput are being measured")
    if job.started_at is not None:
        state["started_at"] = _moment(job.started_at)
    _update_check_run(session, job, "started", state)
    pull_request_comment.refresh_for(session, job)


def cancelled(session: Session, job: Job, reason: str) -> None:
    """Tells that a job was cancelled: its check run must not wait for ever."""
    _update_check_run(session, job, "cancelled", _completed("cancelled", "cancelled", reason, job.finished_at or now()))
    pull_request_comment.refresh_for(session, job)


def conclude(
    session: Session,
    settings: Settings,
    project: Project,
    job: Job,
    verdict: Verdict,
    table: str,
    phase: str = "decided",
) -> None:
    """Tells the verdict, as a status and as a check run with its table."""
    _post_status(session, settings, project, job, phase, STATUS_OF[verdict.verdict], verdict.summary)
    state = _completed(CONCLUSION_OF[verdict.verdict], verdict.summary, table, verdict.decided_at)
    _post_check_run(session, settings, project, job, phase, state)
    pull_request_comment.refresh_for(session, job)


def _open(status: str, title: str) -> dict[str, Any]:
    return {"status": status, "output": {"title": title, "summary": title}}


def _completed(conclusion: str, title: str, summary: str, moment: datetime) -> dict[str, Any]:
    return {
        "status": "completed",
        "conclusion": conclusion,
        "completed_at": _moment(moment),
        "output": {"title": title, "summary": summary[:SUMMARY_LIMIT]},
    }


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _post_status(
    session: Session, settings: Settings, project: Project, job: Job, phase: str, state: str, text: str
) -> None:
    payload = {
        "state": state,
        "target_url": _job_url(settings, job),
        "description": text[:140],
        "context": status_context(job),
    }
    path = f"/repos/{project.name}/statuses/{job.head_sha}"
    _enqueue(session, job, "commit_status", phase, path, payload)


def _post_check_run(
    session: Session, settings: Settings, project: Project, job: Job, phase: str, state: dict[str, Any]
) -> None:
    payload = {
        "name": f"GProj CI ({job.hardware}){_baseline(job)}",
        "head_sha": job.head_sha,
        "details_url": _job_url(settings, job),
        "external_id": str(job.id),
        **state,
    }
    _enqueue(session, job, "check_run", phase, f"/repos/{project.name}/check-runs", payload)


def _update_check_run(session: Session, job: Job, phase: str, state: dict[str, Any]) -> None:
    """Says something new about a check run; of jobs that were made before check runs had a life nothing is said."""
    before = repository.newest_check_run(session, job.id)
    if before is None:
        return
    identity = {key: before.payload[key] for key in ("name", "head_sha", "details_url", "external_id")}
    _enqueue(session, job, "check_run", phase, before.path, {**identity, **state})


def _enqueue(session: Session, job: Job, kind: str, phase: str, path: str, payload: dict[str, Any]) -> None:
    if job.kind in SEARCH_KINDS:  # their base is another than the merge's: they must not overwrite its status
        return
    outbox.enqueue(
        session, GithubReport(job_id=job.id, kind=kind, phase=phase, method="POST", path=path, payload=payload)
    )


def _job_url(settings: Settings, job: Job) -> str:
    return f"{settings.public_url}/jobs/{job.id}"
