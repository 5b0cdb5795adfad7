"""Decisions about jobs: when one is made, superseded, approved, cancelled, claimed, lost, tried again.

draft → awaiting_approval → queued → running → deciding → finished
  └────────────┴──────────────┴─────────┴──────────┴────→ cancelled      running → queued when an attempt is lost
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gprojci_service import logs
from gprojci_service.database import send_after_commit
from gprojci_service.errors import (
    AttemptNotFound,
    JobNotFound,
    JobNotOpen,
    JobNotWaiting,
    LeaseLost,
    ProjectArchived,
)
from gprojci_service.github import service as github
from gprojci_service.jobs import repository
from gprojci_service.models import Attempt, Job, Project, PullRequest, Worker, now
from gprojci_service.models.job import FREED_KEY, OBSERVING_KINDS, OPEN_STATES, PRIORITY
from gprojci_service.projects import service as projects
from gprojci_service.queue import DECIDE, MEASURE, measure_queue
from gprojci_service.settings import Settings

logger = logging.getLogger(__name__)

# Failures of the machinery around a kernel; those of the kernel itself are results and are not tried again.
TRANSIENT = ("lost_worker", "checkout_error")


def get(session: Session, job_id: int) -> Job:
    """Raises:
    JobNotFound: there is no job of that number.
    """
    job = repository.by_id(session, job_id)
    if job is None:
        raise JobNotFound(f"no job {job_id}")
    return job


def create(
    session: Session,
    settings: Settings,
    project: Project,
    *,
    kind: str,
    head_sha: str,
    base_sha: str | None,
    ref: str | None,
    pull_request: PullRequest | None = None,
    hardware: Sequence[str] | None = None,
    effort: int = 1,
    occasion: str = "",
) -> list[int]:
    """Makes a job for each hardware class of the project and returns their numbers; one that exists is not made twice.

    `occasion` tells jobs about the same commits apart, such as last night's and tonight's; `hardware` and `effort` take
    the place of the project's classes and of measuring the manifest's pairs once.

    A pull request's open jobs about another head or base are cancelled as superseded, also where the present commits
    have their jobs already (a force push back to an earlier commit). A draft's waits until it is ready, the code of
    forks and of first-time authors for an approval of its commit. Jobs of kind `baseline` are made beside the others
    and supersede none.

    Raises:
        ProjectArchived: the repository is archived or deleted.
    """
    _must_be_active(project)
    projects.record_commit(session, project.id, head_sha)
    approved = repository.approval(session, pull_request.id, head_sha) if pull_request else None
    created: list[int] = []
    for on in hardware or project.hardware or settings.default_hardware:
        job = Job(
            project_id=project.id,
            kind=kind,
            head_sha=head_sha,
            base_sha=base_sha,
            ref=ref,
            hardware=on,
            pull_request_id=pull_request.id if pull_request else None,
            priority=PRIORITY.get(kind, 0),
            effort=effort,
            dedup_key=_dedup_key(project, kind, head_sha, base_sha, on, pull_request, occasion),
            approved_at=approved.approved_at if approved else None,
            approved_by=approved.approved_by if approved else None,
        )
        if pull_request and pull_request.draft and kind != "baseline":
            job.state = "draft"
        else:
            _set_first_state(session, job)
        known = repository.by_dedup_key(session, job.dedup_key)
        if known is not None:
            if known.state == "draft" and job.state != "draft":
                ready(session, settings, project, known)
                created.append(known.id)
            continue
        try:
            with session.begin_nested():
                session.add(job)
        except IntegrityError:  # another transaction made it between the look and the insert
            continue
        created.append(job.id)
        _announce(session, settings, project, job)
    if pull_request and kind != "baseline":
        _supersede(session, pull_request, base_sha, created)
    return created


def ready(session: Session, settings: Settings, project: Project, job: Job) -> None:
    """Lets a draft's job go its way: its pull request is ready, or somebody asked for it all the same."""
    _set_first_state(session, job)
    _announce(session, settings, project, job, phase="ready")


def _announce(session: Session, settings: Settings, project: Project, job: Job, phase: str = "created") -> None:
    """Has GitHub told of a job, and the workers, if it may be measured at once."""
    github.announce(session, settings, project, job, phase)
    if job.state == "queued":
        _hint(session, job)


def _hint(session: Session, job: Job) -> None:
    """Tells the workers of the job's hardware class that it is queued."""
    send_after_commit(session, MEASURE, job.id, queue=measure_queue(job.hardware))


def _pull_request(session: Session, job: Job) -> PullRequest | None:
    return session.get(PullRequest, job.pull_request_id) if job.pull_request_id else None


def _must_be_active(project: Project) -> None:
    if project.archived_at is not None:
        raise ProjectArchived(f"project {project.name} is archived since its repository is archived or deleted")


def _dedup_key(
    project: Project,
    kind: str,
    head_sha: str,
    base_sha: str | None,
    hardware: str,
    pull_request: PullRequest | None,
    occasion: str,
) -> str:
    subject = f"#{pull_request.number}" if pull_request else kind
    subject = f"baseline{subject}" if kind == "baseline" else subject
    key = f"{project.id}/{subject}/{head_sha}/{base_sha or 'parent'}/{hardware}"
    return f"{key}/{occasion}" if occasion else key


def _supersede(session: Session, pull_request: PullRequest, base_sha: str | None, by: list[int]) -> None:
    for job in repository.open_of_pull_request(session, pull_request.id):
        if job.head_sha != pull_request.head_sha:
            _cancelled_by_event(session, job, f"superseded by commit {pull_request.head_sha[:10]}")
        elif job.base_sha != base_sha and job.kind != "baseline":
            _cancelled_by_event(session, job, f"superseded by base {pull_request.base_ref}")
        else:
            continue
        job.superseded_by_id = by[0] if by else None


def cancel_of_pull_request(session: Session, pull_request_id: int, reason: str) -> int:
    """Cancels the open jobs of a pull request; returns how many."""
    return _cancel_all(session, repository.open_of_pull_request(session, pull_request_id), reason)


def cancel_of_merge_group(session: Session, project_id: int, head_sha: str, reason: str) -> int:
    """Cancels the open jobs of a merge group; returns how many."""
    return _cancel_all(session, repository.open_of_merge_group(session, project_id, head_sha), reason)


def cancel_of_project(session: Session, project_id: int, reason: str) -> int:
    """Cancels the open jobs of a project; returns how many."""
    return _cancel_all(session, repository.open_of_project(session, project_id), reason)


def _cancel_all(session: Session, jobs: Sequence[Job], reason: str) -> int:
    for job in jobs:
        _cancelled_by_event(session, job, reason)
    return len(jobs)


def _cancelled_by_event(session: Session, job: Job, reason: str) -> None:
    _end_cancelled(session, job, reason)
    job.dedup_key += f"{FREED_KEY}{job.id}"


def cancel(session: Session, job_id: int, reason: str) -> Job:
    """Cancels an open job; its worker hears of it with the next heartbeat.

    Raises:
        JobNotFound: there is none.
        JobNotOpen: it has ended.
    """
    job = _locked(session, job_id)
    if job.state not in OPEN_STATES:
        raise JobNotOpen(f"job {job_id} is {job.state}; start a new one with `gprojci job rerun {job_id}`")
    _end_cancelled(session, job, reason)
    return job


def _end_cancelled(session: Session, job: Job, reason: str) -> None:
    job.state, job.detail, job.finished_at = "cancelled", reason, now()
    for attempt in repository.attempts_of(session, job.id):
        if attempt.state == "running":
            attempt.state, attempt.detail, attempt.finished_at = "cancelled", reason, now()
    github.cancelled(session, job, reason)


def approve(session: Session, job_id: int, head_sha: str, by: str) -> Job:
    """Lets an untrusted commit be built, on every hardware class that waits for it.

    The SHA is named again so that nobody approves what was pushed meanwhile.

    Args:
        by: GitHub login, or name of the token.

    Raises:
        JobNotFound: there is none.
        JobNotWaiting: it does not wait for an approval, or is about another commit than was named or is there now.
    """
    job = _locked(session, job_id)
    if job.state != "awaiting_approval" or job.head_sha != head_sha:
        raise JobNotWaiting(
            f"job {job_id} is {job.state} and about commit {job.head_sha}; only a waiting commit can be approved"
        )
    moved = _moved(session, job)
    if moved:
        raise JobNotWaiting(f"{moved}; a new push needs an approval of its own")
    same = repository.waiting(session, job.pull_request_id, head_sha) if job.pull_request_id else [job]
    for one in same:
        one.state, one.detail, one.approved_at, one.approved_by = "queued", None, now(), by
        github.approved(session, one)
        _hint(session, one)
    return job


def _moved(session: Session, job: Job) -> str:
    """Why an approval does not carry: the pull request has another head by now; empty where it has not."""
    pull_request = _pull_request(session, job)
    if pull_request is None or pull_request.head_sha == job.head_sha:
        return ""
    return f"pull request {pull_request.number} is at commit {pull_request.head_sha[:10]} now"


def withdraw(session: Session, job_id: int, reason: str) -> None:
    """Cancels a job whose approval does not carry, unless it has ended."""
    job = _locked(session, job_id)
    if job.state in OPEN_STATES:
        _cancelled_by_event(session, job, reason)


def rerun(session: Session, settings: Settings, job_id: int) -> Job:
    """A new job about the same commits; an untrusted commit that nobody approved still waits for it.

    Raises:
        JobNotFound: there is none.
        JobNotOpen: it has not ended yet.
        ProjectArchived: its repository is archived or deleted.
    """
    job = get(session, job_id)
    if job.state in OPEN_STATES:
        raise JobNotOpen(f"job {job_id} is still {job.state}; wait for it or cancel it first")
    project = session.get_one(Project, job.project_id)
    _must_be_active(project)
    again = Job(
        project_id=job.project_id,
        kind=job.kind if job.kind in ("baseline", *OBSERVING_KINDS) else "manual",
        effort=job.effort,
        head_sha=job.head_sha,
        base_sha=job.base_sha,
        ref=job.ref,
        hardware=job.hardware,
        pull_request_id=job.pull_request_id,
        retry_of_id=job.id,
        dedup_key=f"{project.id}/rerun-of-{job.id}/{now().isoformat()}",
        approved_at=job.approved_at,
        approved_by=job.approved_by,
    )
    _set_first_state(session, again)
    session.add(again)
    session.flush()
    _announce(session, settings, project, again)
    return again


def rerun_head(session: Session, settings: Settings, project: Project, head_sha: str, like: Job | None) -> list[int]:
    """Reruns the newest job of each kind about a commit, or of the one kind that a job is of; returns their numbers.

    Those that are still open stay as they are; a draft's, asked for by hand, goes its way.
    """
    newest: dict[tuple[str, int | None, str | None, bool], Job] = {}
    for job in repository.of_head(session, project.id, head_sha):
        if job.kind not in OBSERVING_KINDS:  # of those GitHub, where this is asked for, knows nothing
            newest.setdefault(_kind_of_measurement(job), job)
    again: list[int] = []
    for job in reversed(newest.values()):
        if like is not None and _kind_of_measurement(job) != _kind_of_measurement(like):
            continue
        if job.state == "draft":
            ready(session, settings, project, job)
            again.append(job.id)
        elif job.state not in OPEN_STATES:
            again.append(rerun(session, settings, job.id).id)
    return again


def _kind_of_measurement(job: Job) -> tuple[str, int | None, str | None, bool]:
    return job.hardware, job.pull_request_id, job.base_sha, job.kind == "baseline"


def _set_first_state(session: Session, job: Job) -> None:
    """The commit of a fork or a first-time author waits until somebody has approved it; others are queued at once."""
    pull_request = _pull_request(session, job)
    why = pull_request.untrusted if pull_request else ""
    if why and job.approved_at is None:
        job.state, job.detail = "awaiting_approval", why
    else:
        job.state = "queued"


def claim(
    session: Session, settings: Settings, worker: Worker, claim_id: str, job_id: int | None
) -> tuple[Attempt, Job, Project] | None:
    """Gives a worker the queued job of its hardware class whose turn it is, else None.

    Which one a message told it of does not matter while others wait: there are as many messages as jobs.

    The same `claim_id` gets the same attempt, so a claim whose answer was lost can be repeated.
    """
    known = repository.attempt_by_claim(session, claim_id)
    if known is not None:
        return (known, *_with_project(session, get(session, known.job_id))) if known.state == "running" else None
    found = repository.next_queued(session, worker.hardware) or _told(session, worker, job_id)
    while found is not None and (moved := _moved_since_approval(session, found[0])):
        _cancelled_by_event(session, found[0], moved)
        session.flush()
        found = repository.next_queued(session, worker.hardware)
    if found is None:
        return None
    job, project = found
    moment, first = now(), job.started_at is None
    attempt = Attempt(
        job_id=job.id,
        worker_id=worker.id,
        number=1 if first else repository.attempt_count(session, job.id) + 1,
        claim_id=claim_id,
        boot_id=worker.boot_id,
        lease_expires_at=moment + timedelta(seconds=settings.lease_seconds),
        deadline_at=moment + timedelta(seconds=settings.hard_limit_seconds),
        steps=[],
    )
    job.state, job.started_at = "running", job.started_at or moment
    session.add(attempt)
    session.flush()
    if first:
        github.started(session, job)
    logs.note(job=job.id, attempt=attempt.number)
    logger.info("claimed by %s", worker.name)
    return attempt, job, project


def _moved_since_approval(session: Session, job: Job) -> str:
    moved = _moved(session, job) if job.approved_at is not None else ""
    return f"{moved}: the approval was of commit {job.head_sha[:10]}" if moved else ""


def _told(session: Session, worker: Worker, job_id: int | None) -> tuple[Job, Project] | None:
    """The job of a message, which another transaction may only have held for a moment."""
    job = repository.locked(session, job_id) if job_id is not None else None
    if job is None or job.state != "queued" or job.hardware != worker.hardware:
        return None
    return _with_project(session, job)


def _with_project(session: Session, job: Job) -> tuple[Job, Project]:
    return job, session.get_one(Project, job.project_id)


def held_attempt(session: Session, attempt_id: int, fencing_token: int) -> Attempt:
    """The attempt, locked, if it is still the caller's.

    Raises:
        AttemptNotFound: there is none of that number.
        LeaseLost: it ended, was given up for lost, or the token is another's.
    """
    attempt = repository.attempt(session, attempt_id)
    if attempt is None:
        raise AttemptNotFound(f"no attempt {attempt_id}")
    logs.note(job=attempt.job_id, attempt=attempt.number)
    if attempt.fencing_token != fencing_token or attempt.state != "running":
        raise LeaseLost(f"attempt {attempt_id} is {attempt.state}; stop measuring and claim again")
    return attempt


def renew(settings: Settings, attempt: Attempt, moment: datetime) -> None:
    """Renews the lease of an attempt whose worker is heard of.

    Where the lease had lapsed and no reaper came, the clock was set forward or the service was away; the time since is
    not taken from the attempt.
    """
    attempt.deadline_at += max(moment - attempt.lease_expires_at, timedelta(0))
    attempt.heartbeat_at, attempt.lease_expires_at = moment, moment + timedelta(seconds=settings.lease_seconds)


def lose(session: Session, settings: Settings, attempt: Attempt, kind: str, detail: str) -> None:
    """Ends an attempt that will not report, and has its job tried again or decided without a report."""
    attempt.state, attempt.failure_kind, attempt.detail, attempt.finished_at = "lost", kind, detail, now()
    logger.warning("attempt %d of job %d: %s: %s", attempt.number, attempt.job_id, kind, detail)
    fail_or_retry(session, settings, attempt, kind, detail)


def fail_or_retry(session: Session, settings: Settings, attempt: Attempt, kind: str, detail: str) -> None:
    """After a failed attempt: tries again where the failure is transient and tries are left, else decides the job."""
    job = _locked(session, attempt.job_id)
    if job.state != "running":
        return
    if kind in TRANSIENT and repository.tries(session, job.id) < settings.max_attempts:
        job.state = "queued"
        _hint(session, job)
    else:
        job.state, job.failure_kind, job.detail = "deciding", kind, detail
        send_after_commit(session, DECIDE, job.id)


def give_back(session: Session, attempt: Attempt, reason: str) -> None:
    """Ends an attempt that its worker hands back, and has its job wait again."""
    attempt.state, attempt.step, attempt.detail, attempt.finished_at = "returned", None, reason, now()
    job = _locked(session, attempt.job_id)
    if job.state == "running":
        job.state = "queued"
        _hint(session, job)


def reap(session: Session, settings: Settings, moment: datetime) -> int:
    """Gives up attempts whose lease or hard limit has passed; returns how many.

    After a jump of the clock both may seem to have passed: whom nothing is heard of before this is then lost, and its
    job tried again (who is heard of in time: `renew`).
    """
    repository.bring_forward(
        session,
        moment + timedelta(seconds=settings.lease_seconds),
        moment + timedelta(seconds=settings.hard_limit_seconds),
    )
    attempts = repository.expired(session, moment)
    for attempt in attempts:
        if attempt.lease_expires_at < moment:
            since = attempt.heartbeat_at.isoformat(timespec="seconds")
            lose(session, settings, attempt, "lost_worker", f"no heartbeat since {since}")
        else:
            lose(session, settings, attempt, "timeout", f"no report within {settings.hard_limit_seconds:g} s")
    return len(attempts)


def _locked(session: Session, job_id: int) -> Job:
    job = repository.locked(session, job_id)
    if job is None:
        raise JobNotFound(f"no job {job_id}")
    return job
