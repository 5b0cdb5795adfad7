"""Decisions about schedules: set, removed, run.

A run always measures, also a head that was measured before: the same code at another time shows how far the machine
has drifted. One that falls into a time when the service was away is made up for once; one that finds the jobs of the
run before it still open is left out.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from gprojci_service.errors import NotFound
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Project, Schedule
from gprojci_service.projects import service as projects
from gprojci_service.schedules import repository
from gprojci_service.schedules.schemas import ScheduleOut
from gprojci_service.schedules.timetable import next_run
from gprojci_service.settings import Settings


class ScheduleNotFound(NotFound):
    """The project has no schedule."""


def put(session: Session, name: str, cron: str, moment: datetime) -> ScheduleOut:
    """Sets a project's timetable, in the place of the one it has.

    Raises:
        ProjectNotFound: there is no such project.
        InvalidRequest: it is no cron expression.
    """
    project = projects.get(session, name)
    first = next_run(cron, moment)
    schedule = repository.of_project(session, project.id)
    if schedule is None:
        schedule = Schedule(project_id=project.id)
        session.add(schedule)
    schedule.cron, schedule.next_run_at = cron, first
    session.flush()
    return view(schedule, project)


def of_project(session: Session, name: str) -> tuple[Schedule, Project]:
    """Raises:
    ProjectNotFound, ScheduleNotFound: there is none.
    """
    project = projects.get(session, name)
    schedule = repository.of_project(session, project.id)
    if schedule is None:
        raise ScheduleNotFound(f"{name} has no schedule; `gprojci schedule set` makes one")
    return schedule, project


def remove(session: Session, name: str) -> None:
    """Raises:
    ProjectNotFound, ScheduleNotFound: there is none.
    """
    session.delete(of_project(session, name)[0])


def run(session: Session, settings: Settings, project_id: int, head_sha: str | None, moment: datetime) -> list[int]:
    """Makes the jobs of a run that is due, and sets the next; safe to call twice. Returns the jobs' numbers.

    Args:
        head_sha: head of the default branch as GitHub says; None takes the newest that a push told of.
    """
    schedule, project = repository.of_project(session, project_id), session.get_one(Project, project_id)
    if schedule is None or schedule.next_run_at > moment:
        return []
    occasion = schedule.next_run_at.isoformat()
    schedule.next_run_at, schedule.last_run_at = next_run(schedule.cron, moment), moment
    head, waiting = head_sha or repository.newest_head(session, project), repository.open_job(session, project_id)
    created: list[int] = []
    if project.archived_at is not None:
        schedule.last_outcome = "left out: the project is archived"
    elif head is None:
        schedule.last_outcome = f"left out: no push has told of the head of {project.default_branch} yet"
    elif waiting is not None:
        schedule.last_outcome = f"left out: job {waiting} of the run before has not ended"
    else:
        created = jobs.create(
            session,
            settings,
            project,
            kind="schedule",
            head_sha=head,
            base_sha=None,
            ref=project.default_branch,
            occasion=occasion,
        )
        schedule.last_outcome = f"commit {head[:10]}: job(s) {', '.join(map(str, created))}"
    return created


def view(schedule: Schedule, project: Project) -> ScheduleOut:
    """A schedule as the API shows it."""
    return ScheduleOut(
        project=project.name,
        default_branch=project.default_branch,
        cron=schedule.cron,
        next_run_at=schedule.next_run_at,
        last_run_at=schedule.last_run_at,
        last_outcome=schedule.last_outcome,
    )
