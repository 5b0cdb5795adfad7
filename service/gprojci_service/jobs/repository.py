"""Every query about jobs and attempts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BindParameter, Select, bindparam, func, literal, or_, select, true, union_all, update
from sqlalchemy.orm import Session, aliased

from gprojci_service.models import Attempt, Job, Project, Report, Sample, Series
from gprojci_service.models.job import FREED_KEY, OBSERVING_KINDS, OPEN_STATES, PRIORITIES


def by_id(session: Session, job_id: int) -> Job | None:
    return session.get(Job, job_id)


def locked(session: Session, job_id: int) -> Job | None:
    return session.scalar(select(Job).where(Job.id == job_id).with_for_update())


def by_dedup_key(session: Session, key: str) -> Job | None:
    return session.scalar(select(Job).where(Job.dedup_key == key))


def open_of_pull_request(session: Session, pull_request_id: int) -> Sequence[Job]:
    return session.scalars(
        select(Job).where(Job.pull_request_id == pull_request_id, Job.state.in_(OPEN_STATES)).with_for_update()
    ).all()


def open_of_project(session: Session, project_id: int) -> Sequence[Job]:
    return session.scalars(
        select(Job).where(Job.project_id == project_id, Job.state.in_(OPEN_STATES)).with_for_update()
    ).all()


def open_of_merge_group(session: Session, project_id: int, head_sha: str) -> Sequence[Job]:
    return session.scalars(
        select(Job)
        .where(Job.project_id == project_id, Job.kind == "merge_group", Job.head_sha == head_sha)
        .where(Job.state.in_(OPEN_STATES))
        .with_for_update()
    ).all()


def merge_group_has_job(session: Session, project_id: int, head_sha: str) -> bool:
    """Whether a merge group has a job that no event has cancelled."""
    of_it = select(Job.id).where(Job.project_id == project_id, Job.kind == "merge_group", Job.head_sha == head_sha)
    return session.scalar(of_it.where(~Job.dedup_key.contains(FREED_KEY)).limit(1)) is not None


def open_merge_groups(session: Session, project_id: int, prefix: str, before: datetime) -> set[str]:
    """Heads of the merge groups on branches of this prefix that have open jobs made before that moment."""
    of_it = select(Job.head_sha).where(Job.project_id == project_id, Job.kind == "merge_group")
    of_it = of_it.where(Job.ref.startswith(prefix, autoescape=True), Job.created_at < before)
    return set(session.scalars(of_it.where(Job.state.in_(OPEN_STATES))))


def approval(session: Session, pull_request_id: int, head_sha: str) -> Job | None:
    """A job whose approval is of this very commit of a pull request."""
    return session.scalar(
        select(Job)
        .where(Job.pull_request_id == pull_request_id, Job.head_sha == head_sha, Job.approved_at.is_not(None))
        .order_by(Job.id)
        .limit(1)
    )


def waiting(session: Session, pull_request_id: int, head_sha: str) -> Sequence[Job]:
    """The jobs about a commit of a pull request that wait for its approval, locked."""
    return session.scalars(
        select(Job)
        .where(Job.pull_request_id == pull_request_id, Job.head_sha == head_sha, Job.state == "awaiting_approval")
        .order_by(Job.id)
        .with_for_update()
    ).all()


def of_pull_request_head(session: Session, pull_request_id: int, head_sha: str) -> Sequence[Job]:
    """All jobs about a commit of a pull request, newest first."""
    return session.scalars(
        select(Job).where(Job.pull_request_id == pull_request_id, Job.head_sha == head_sha).order_by(Job.id.desc())
    ).all()


def of_head(session: Session, project_id: int, head_sha: str) -> Sequence[Job]:
    """All jobs about a commit, newest first."""
    return session.scalars(
        select(Job).where(Job.project_id == project_id, Job.head_sha == head_sha).order_by(Job.id.desc())
    ).all()


def pull_request_has_job(session: Session, pull_request_id: int, head_sha: str) -> bool:
    """Whether a head of a pull request has a job that no event has cancelled."""
    of_it = select(Job.id).where(Job.pull_request_id == pull_request_id, Job.head_sha == head_sha)
    of_it = of_it.where(Job.kind != "baseline")
    return session.scalar(of_it.where(~Job.dedup_key.contains(FREED_KEY)).limit(1)) is not None


def branch_has_job(session: Session, project_id: int, branch: str, head_sha: str) -> bool:
    """Whether a head of a branch has a job that no event has cancelled."""
    of_it = select(Job.id).where(Job.project_id == project_id, Job.head_sha == head_sha)
    of_it = of_it.where(Job.ref == branch, Job.pull_request_id.is_(None), Job.kind.not_in(OBSERVING_KINDS))
    return session.scalar(of_it.where(~Job.dedup_key.contains(FREED_KEY)).limit(1)) is not None


def _turns() -> Select[int, int]:
    """Projects with queued jobs of a hardware class, and how urgent these are, in the order of their turns.

    Each project is asked with each priority, one entry of `ix_job_claim` each: to look at all queued jobs takes longer
    the more of them wait.
    """
    urgency = union_all(*(select(literal(priority).label("priority")) for priority in PRIORITIES)).subquery()
    hardware: BindParameter[str] = bindparam("hardware")
    waits = (Job.hardware == hardware, Job.state == "queued", Job.priority == urgency.c.priority)
    oldest = select(Job.id).where(*waits, Job.project_id == Project.id).order_by(Job.id).limit(1)
    earlier = aliased(Job)
    served = select(func.max(earlier.started_at)).where(earlier.hardware == hardware, earlier.project_id == Project.id)
    return (
        select(Project.id, urgency.c.priority)
        .join_from(Project, urgency, true())
        .where(oldest.correlate(Project, urgency).scalar_subquery().is_not(None))
        .order_by(urgency.c.priority, served.scalar_subquery().asc().nulls_first(), Project.id)
    )


_TURNS = _turns()
_OLDEST = (
    select(Job, Project)
    .join(Project, Project.id == Job.project_id)
    .where(Job.hardware == bindparam("hardware"), Job.state == "queued", Job.priority == bindparam("priority"))
    .where(Job.project_id == bindparam("project_id"))
    .order_by(Job.id)
    .limit(1)
    .with_for_update(of=Job, skip_locked=True)
)


def next_queued(session: Session, hardware: str) -> tuple[Job, Project] | None:
    """The queued job of a hardware class whose turn it is, locked, and its project; one that another claim holds is
    passed over.

    The most urgent first; among projects the one whose last job began longest ago; of a project the oldest. So a
    project with a thousand jobs keeps another's single one waiting for no more than one of them.
    """
    for project_id, priority in session.execute(_TURNS, {"hardware": hardware}).all():
        of = {"hardware": hardware, "project_id": project_id, "priority": priority}
        if (found := session.execute(_OLDEST, of).first()) is not None:
            job, project = found
            return job, project
    return None


def search(
    session: Session,
    *,
    project: str | None,
    state: str | None,
    head_sha: str | None,
    kind: str | None,
    limit: int,
    before: int | None,
) -> Sequence[Job]:
    query = select(Job).order_by(Job.id.desc()).limit(limit)
    if project:
        query = query.join(Project, Project.id == Job.project_id).where(Project.name == project)
    if state == "open":
        query = query.where(Job.state.in_(OPEN_STATES))
    elif state:
        query = query.where(Job.state == state)
    if kind:
        query = query.where(Job.kind == kind)
    if head_sha:
        query = query.where(Job.head_sha.startswith(head_sha, autoescape=True))
    if before:
        query = query.where(Job.id < before)
    return session.scalars(query).all()


def newest_ruler(session: Session, hardware: str) -> str | None:
    """Revision of the ruler of the newest result of a hardware class."""
    return session.scalar(
        select(Series.ruler_revision)
        .join(Sample, Sample.series_id == Series.id)
        .join(Report, Report.id == Sample.report_id)
        .join(Job, Job.id == Report.job_id)
        .where(Job.hardware == hardware)
        .order_by(Sample.id.desc())
        .limit(1)
    )


def heads_measured(
    session: Session, project_id: int, hardware: str, ruler: str | None, heads: Sequence[str]
) -> set[str]:
    """Those of the commits that have an open job as head, or a result under this ruler, on a hardware class."""
    of_class = select(Job.head_sha).where(Job.project_id == project_id, Job.hardware == hardware)
    found = set(session.scalars(of_class.where(Job.state.in_(OPEN_STATES))))
    measured = (
        of_class.join(Report, Report.job_id == Job.id)
        .join(Sample, Sample.report_id == Report.id)
        .join(Series, Series.id == Sample.series_id)
        .where(Report.accepted.is_(True), Series.ruler_revision == ruler)
        .distinct()
    )
    found |= set(session.scalars(measured))
    return found & set(heads)


def heads_beginning_with(session: Session, project_id: int, prefix: str) -> Sequence[str]:
    """Commits with jobs whose SHA begins with `prefix`; at most two, which is enough to tell ambiguity."""
    return session.scalars(
        select(Job.head_sha)
        .where(Job.project_id == project_id, Job.head_sha.startswith(prefix, autoescape=True))
        .distinct()
        .limit(2)
    ).all()


def attempt(session: Session, attempt_id: int) -> Attempt | None:
    return session.scalar(select(Attempt).where(Attempt.id == attempt_id).with_for_update())


def attempt_by_claim(session: Session, claim_id: str) -> Attempt | None:
    return session.scalar(select(Attempt).where(Attempt.claim_id == claim_id))


def attempts_of(session: Session, job_id: int) -> Sequence[Attempt]:
    return session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)).all()


def attempt_count(session: Session, job_id: int) -> int:
    return session.scalar(select(func.count()).select_from(Attempt).where(Attempt.job_id == job_id)) or 0


def tries(session: Session, job_id: int) -> int:
    """How many attempts a job has had, those left out that a worker handed back."""
    of_it = select(func.count()).select_from(Attempt).where(Attempt.job_id == job_id, Attempt.state != "returned")
    return session.scalar(of_it) or 0


def running_of_worker(session: Session, worker_id: int, other_than_boot: str) -> Sequence[Attempt]:
    return session.scalars(
        select(Attempt)
        .where(Attempt.worker_id == worker_id, Attempt.state == "running")
        .where(or_(Attempt.boot_id.is_(None), Attempt.boot_id != other_than_boot))
        .with_for_update()
    ).all()


def expired(session: Session, moment: datetime) -> Sequence[Attempt]:
    return session.scalars(
        select(Attempt)
        .where(Attempt.state == "running")
        .where(or_(Attempt.lease_expires_at < moment, Attempt.deadline_at < moment))
        .with_for_update(skip_locked=True)
    ).all()


def bring_forward(session: Session, lease_end: datetime, deadline: datetime) -> None:
    """Has no lease and no hard limit end later than if they began now: the clock was set back since."""
    for column, latest in ((Attempt.lease_expires_at, lease_end), (Attempt.deadline_at, deadline)):
        session.execute(update(Attempt).where(Attempt.state == "running", column > latest).values({column: latest}))


def queued_by_hardware(session: Session) -> dict[str, list[int]]:
    """Numbers of the queued jobs of each hardware class, the most urgent first."""
    waiting: dict[str, list[int]] = {}
    for hardware, job_id in session.execute(
        select(Job.hardware, Job.id).where(Job.state == "queued").order_by(Job.priority, Job.id).limit(1000)
    ):
        waiting.setdefault(hardware, []).append(job_id)
    return waiting


def undecided(session: Session) -> Sequence[int]:
    return session.scalars(select(Job.id).where(Job.state == "deciding").order_by(Job.id)).all()
