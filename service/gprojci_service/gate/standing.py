"""Where a commit stands: the newest gating job of each hardware class, and the one word that they come to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy.orm import Session

from gprojci_service.errors import CommitNotFound, InvalidRequest
from gprojci_service.gate import repository
from gprojci_service.gate.schemas import GateJob, GateOut, GateWord
from gprojci_service.jobs import repository as job_repository
from gprojci_service.models import Job
from gprojci_service.models.job import OBSERVING_KINDS, OPEN_STATES
from gprojci_service.projects import service as projects

# A failure on one class is final, whatever the others say; until then one that is not decided keeps all waiting.
_ORDER: tuple[GateWord, ...] = ("fail", "pending", "error", "neutral", "pass")


def standing(session: Session, name: str, commit: str) -> GateOut:
    """The gate's word on a commit of a project; jobs that only look at it or take another base have no part in it.

    Raises:
        ProjectNotFound: there is no such project.
        InvalidRequest: the commit is not named clearly.
        CommitNotFound: it has no gating job that was not cancelled.
    """
    project = projects.get(session, name)
    sha = _named(job_repository.heads_beginning_with(session, project.id, _checked(commit)), name, commit)
    newest: dict[str, Job] = {}
    for job in job_repository.of_head(session, project.id, sha):
        if job.kind not in (*OBSERVING_KINDS, "baseline") and job.state != "cancelled":
            newest.setdefault(job.hardware, job)
    if not newest:
        raise CommitNotFound(_no_job(name, sha))
    jobs = [_job(session, job) for _, job in sorted(newest.items())]
    words = {job.word for job in jobs}
    return GateOut(project=name, head_sha=sha, word=next(word for word in _ORDER if word in words), jobs=jobs)


def _checked(commit: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{4,64}", commit):
        raise InvalidRequest(f"{commit!r}: give a commit as 4 or more hexadecimal digits of its SHA")
    return commit


def _named(found: Sequence[str], name: str, commit: str) -> str:
    if not found:
        raise CommitNotFound(_no_job(name, commit))
    if len(found) > 1:
        raise InvalidRequest(f"more than one measured commit begins with {commit}; give more digits")
    return found[0]


def _no_job(name: str, commit: str) -> str:
    return f"no job of {name} is about commit {commit}; `gprojci submit {name} SHA` makes one"


def _job(session: Session, job: Job) -> GateJob:
    verdict = repository.of_job(session, job.id)
    if verdict is not None:
        return GateJob(id=job.id, hardware=job.hardware, state=job.state, word=verdict.verdict, summary=verdict.summary)
    word: GateWord = "pending" if job.state in OPEN_STATES else "error"
    return GateJob(id=job.id, hardware=job.hardware, state=job.state, word=word, summary=job.detail or job.state)
