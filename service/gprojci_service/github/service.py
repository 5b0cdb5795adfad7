"""What GitHub is told, and when: a status that is pending until the verdict, a check run that lives with its job.

Sources: GitHub's REST documentation, "Create a commit status", "Create a check run" and "Update a check run".
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.github import outbox, pull_request_comment, repository
from gprojci_service.github.check_output import CheckOutput
from gprojci_service.github.markdown import literal
from gprojci_service.models import GithubReport, Job, Project, Verdict, now
from gprojci_service.models.job import OBSERVING_KINDS
from gprojci_service.settings import Settings

# A neutral verdict does not block a merge: the gate could not tell, and says so in the description.
STATUS_OF = {"pass": "success", "fail": "failure", "neutral": "success", "error": "error"}
CONCLUSION_OF = {"pass": "success", "fail": "failure", "neutral": "neutral", "error": "action_required"}
WAITS = "waits for an approval of this commit"
QUEUED = "queued: accuracy and throughput will be measured"
DRAFT = "a draft is measured once it is ready for review"


def status_context(job: Job) -> str:
    """Name of the commit status; one for each hardware class, so that a branch rule can require it."""
    return f"gprojci/{job.hardware}{_baseline(job)}"


def _baseline(job: Job) -> str:
    """A comparison with another base is called by it, so that it decides no merge."""
    return f" against {(job.base_sha or '')[:10]}" if job.kind == "baseline" else ""


def announce(session: Session, settings: Settings, project: Project, job: Job, phase: str = "created") -> None:
    """Tells of a new job: a pending status and a queued check run, so that a job that never ran is not green.

    An untrusted commit has a check run that asks for action, until somebody approves it. A draft's job is told of when
    it is made, and again (phase `ready`) when it goes its way.
    """
    text = {"awaiting_approval": f"{WAITS}: {job.detail}", "draft": DRAFT}.get(job.state, QUEUED)
    _post_status(session, settings, project, job, phase, "pending", text)
    if job.state == "awaiting_approval":
        output = CheckOutput(text, _how_to_approve(settings, job))
        state = _completed("action_required", output, job.created_at)
    else:
        state = _open("queued", text)
    _post_check_run(session, settings, project, job, phase, state)
    pull_request_comment.refresh_for(session, job)


def _how_to_approve(settings: Settings, job: Job) -> str:
    lines = [
        f"Nothing of commit {job.head_sha} is built before somebody with write access has approved it, since "
        f"{literal(job.detail or '')}. Look at its changes, then approve it in one of these ways:",
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
    """Tells that a job was cancelled: neither its check run nor its status waits for ever, and neither is green.

    Where a newer job about the same commit has set the status meanwhile, that one stays.
    """
    title = f"cancelled: {reason}"
    output = CheckOutput(title, literal(title))
    _update_check_run(session, job, "cancelled", _completed("cancelled", output, job.finished_at or now()))
    before = repository.newest(session, job.id, "commit_status")
    if before is not None and not repository.has_newer_status(session, before):
        payload = {**before.payload, "state": "error", "description": title[:140]}
        _enqueue(session, job, "commit_status", "cancelled", before.path, payload)
    pull_request_comment.refresh_for(session, job)


def conclude(
    session: Session,
    settings: Settings,
    project: Project,
    job: Job,
    verdict: Verdict,
    output: CheckOutput,
    phase: str = "decided",
) -> None:
    """Tells the verdict, as a status and as a check run with its table."""
    _post_status(session, settings, project, job, phase, STATUS_OF[verdict.verdict], verdict.summary)
    state = _completed(CONCLUSION_OF[verdict.verdict], output, verdict.decided_at)
    _post_check_run(session, settings, project, job, phase, state)
    pull_request_comment.refresh_for(session, job)


def _open(status: str, title: str) -> dict[str, Any]:
    return {"status": status, "output": {"title": title, "summary": title}}


def _completed(conclusion: str, output: CheckOutput, moment: datetime) -> dict[str, Any]:
    return {
        "status": "completed",
        "conclusion": conclusion,
        "completed_at": _moment(moment),
        "output": output.to_json(),
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
    before = repository.newest(session, job.id, "check_run")
    if before is None:
        return
    identity = {key: before.payload[key] for key in ("name", "head_sha", "details_url", "external_id")}
    _enqueue(session, job, "check_run", phase, before.path, {**identity, **state})


def _enqueue(session: Session, job: Job, kind: str, phase: str, path: str, payload: dict[str, Any]) -> None:
    if job.kind in OBSERVING_KINDS:  # their base is another than the merge's: they must not overwrite its status
        return
    outbox.enqueue(
        session, GithubReport(job_id=job.id, kind=kind, phase=phase, method="POST", path=path, payload=payload)
    )


def _job_url(settings: Settings, job: Job) -> str:
    return f"{settings.public_url}/jobs/{job.id}"
