"""Decisions about workers: greeting them, handing out work, hearing that an attempt is alive."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gprojci_service.errors import LeaseLost, WorkerDrained, WorkerNotFound, WorkerReplaced
from gprojci_service.jobs import repository as job_repository
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Attempt, LogChunk, PullRequest, Worker, now
from gprojci_service.projects import service as projects
from gprojci_service.settings import Settings
from gprojci_service.workers import repository
from gprojci_service.workers.schemas import (
    Alive,
    AliveAnswer,
    Claim,
    Claimed,
    ClaimedAttempt,
    ClaimedJob,
    ClaimedProject,
    ClaimedPullRequest,
    Heartbeat,
    HeartbeatAnswer,
    Hello,
    Log,
    Resolved,
    ResolvedCommit,
    Return,
    Welcome,
)


@dataclass(frozen=True)
class HandedOut:
    """A claimed attempt, and what GitHub is to be asked before the worker has it.

    Attributes:
        approved: the pull request of a commit that is built only for an approval: is it still at that commit?
    """

    claimed: Claimed
    approved: int | None

    @property
    def asks_github(self) -> bool:
        """Whether there is anything."""
        return self.approved is not None or self.claimed.project.private


def greet(session: Session, settings: Settings, hello: Hello) -> Welcome:
    """Notes that a worker has started; attempts that an earlier start of it held are lost, their jobs tried again."""
    worker = repository.by_name(session, hello.name)
    if worker is None:
        worker = Worker(name=hello.name)
        session.add(worker)
    worker.hardware, worker.device, worker.device_name = hello.hardware, hello.device, hello.device_name
    worker.boot_id, worker.environment, worker.last_seen_at = hello.boot_id, hello.environment, now()
    session.flush()
    for attempt in job_repository.running_of_worker(session, worker.id, hello.boot_id):
        jobs.lose(session, settings, attempt, "lost_worker", f"worker {worker.name} was started anew")
    return Welcome(
        worker_id=worker.id,
        lease_seconds=settings.lease_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
        draining=worker.draining_at is not None,
    )


def keep_known(session: Session, alive: Alive) -> AliveAnswer:
    """Notes that an idle worker is there.

    Raises:
        WorkerNotFound: the worker has not said hello.
        WorkerReplaced: another one has said hello under its name since.
    """
    worker = _seen(session, alive)
    return AliveAnswer(draining=worker.draining_at is not None)


def drain(session: Session, name: str, *, unless_drained: bool = False) -> Worker:
    """Gives a worker no more work; what it measures now it finishes. Lasts until it is resumed, also over restarts.

    Raises:
        WorkerNotFound: no worker of that name has said hello.
        WorkerDrained: `unless_drained`, and it is.
    """
    worker = _named(session, name)
    if unless_drained and worker.draining_at is not None:
        raise WorkerDrained(
            f"worker {name!r} has been drained since {worker.draining_at:%Y-%m-%d %H:%M} UTC; if nobody needs that any "
            f"more, `gprojci worker resume {name}`"
        )
    worker.draining_at = worker.draining_at or now()
    return worker


def resume(session: Session, name: str) -> Worker:
    """Gives a drained worker work again.

    Raises:
        WorkerNotFound: no worker of that name has said hello.
    """
    worker = _named(session, name)
    worker.draining_at = None
    return worker


def _named(session: Session, name: str) -> Worker:
    worker = repository.by_name(session, name)
    if worker is None:
        raise WorkerNotFound(f"no worker is called {name!r}; `gprojci worker list` shows them")
    return worker


def _seen(session: Session, asking: Alive | Claim) -> Worker:
    """The worker that asks, locked: it was seen now."""
    name, worker = asking.worker, repository.seen(session, asking.worker, now())
    if worker is None:
        raise WorkerNotFound(f"worker {name!r} is unknown; POST /api/v1/worker/hello first")
    if asking.boot_id not in (None, worker.boot_id):
        raise WorkerReplaced(
            f"another worker has been started under the name {name!r}: this one gets no more work; "
            "give each its own GPROJCI_WORKER_NAME and start it anew"
        )
    return worker


def claim(session: Session, settings: Settings, request: Claim) -> HandedOut | None:
    """Hands out the next attempt, or None where nothing waits or the worker is drained.

    Raises:
        WorkerNotFound: the worker has not said hello.
        WorkerReplaced: another one has said hello under its name since.
    """
    worker = _seen(session, request)
    taken = None if worker.draining_at else jobs.claim(session, settings, worker, request.claim_id, request.job_id)
    if taken is None:
        return None
    attempt, job, project = taken
    pull_request = session.get(PullRequest, job.pull_request_id) if job.pull_request_id else None
    claimed = Claimed(
        attempt=ClaimedAttempt(
            id=attempt.id,
            number=attempt.number,
            fencing_token=attempt.fencing_token,
            lease_seconds=settings.lease_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
            hard_limit_seconds=(attempt.deadline_at - attempt.started_at).total_seconds(),
        ),
        job=ClaimedJob(
            id=job.id,
            kind=job.kind,
            head_sha=job.head_sha,
            base_sha=job.base_sha,
            effort=job.effort,
            pull_request=ClaimedPullRequest(
                number=pull_request.number, base_ref=pull_request.base_ref, head_ref=pull_request.head_ref
            )
            if pull_request
            else None,
        ),
        project=ClaimedProject(
            name=project.name,
            clone_url=project.clone_url,
            private=project.private,
        ),
    )
    return HandedOut(claimed, pull_request.number if pull_request and pull_request.untrusted else None)


def heartbeat(session: Session, settings: Settings, attempt_id: int, beat: Heartbeat) -> HeartbeatAnswer:
    """Renews the lease; `cancel` says that the job was cancelled meanwhile.

    Raises:
        LeaseLost, AttemptNotFound: the attempt is no longer the caller's.
    """
    attempt = job_repository.attempt(session, attempt_id)
    if attempt is not None and attempt.state == "cancelled" and attempt.fencing_token == beat.fencing_token:
        return HeartbeatAnswer(cancel=True, lease_seconds=settings.lease_seconds)
    attempt = jobs.held_attempt(session, attempt_id, beat.fencing_token)
    moment = now()
    jobs.renew(settings, attempt, moment)
    attempt.step = beat.step
    if beat.steps:
        attempt.steps = [step.model_dump(mode="json") for step in beat.steps]
    session.get_one(Worker, attempt.worker_id).last_seen_at = moment
    if beat.resolved is not None:
        _record_resolved(session, attempt, beat.resolved)
    return HeartbeatAnswer(cancel=False, lease_seconds=settings.lease_seconds)


def give_back(session: Session, attempt_id: int, back: Return) -> None:
    """Takes an attempt back from a worker that stops; its job waits again at once, and this try does not count.

    Raises:
        LeaseLost, AttemptNotFound: the attempt is no longer the caller's.
    """
    attempt = job_repository.attempt(session, attempt_id)
    if attempt is not None and attempt.state == "returned" and attempt.fencing_token == back.fencing_token:
        return
    jobs.give_back(session, jobs.held_attempt(session, attempt_id, back.fencing_token), back.reason)


def append_log(session: Session, attempt_id: int, log: Log) -> None:
    """Stores some lines once.

    Raises:
        LeaseLost, AttemptNotFound: the attempt is no longer the caller's.
    """
    jobs.held_attempt(session, attempt_id, log.fencing_token)
    if repository.log_chunk(session, attempt_id, log.sequence) is not None:
        return
    try:
        with session.begin_nested():
            session.add(LogChunk(attempt_id=attempt_id, sequence=log.sequence, text=log.text.replace("\x00", "�")))
    except IntegrityError:
        return  # the same chunk, sent twice at once


def _record_resolved(session: Session, attempt: Attempt, resolved: Resolved) -> None:
    job = jobs.get(session, attempt.job_id)
    if resolved.head.sha != job.head_sha:
        raise LeaseLost(f"attempt {attempt.id} is about commit {job.head_sha}, not {resolved.head.sha}; build nothing")
    _record_commit(session, job.project_id, resolved.head)
    if resolved.base is not None:
        _record_commit(session, job.project_id, resolved.base)
        job.merge_base_sha = resolved.base.sha


def _record_commit(session: Session, project_id: int, commit: ResolvedCommit) -> None:
    projects.record_commit(
        session,
        project_id,
        commit.sha,
        message=commit.message,
        author_name=commit.author_name,
        author_email=commit.author_email,
        authored_at=commit.authored_at,
        parents=commit.parents,
    )
