"""HTTP: schedules."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from gprojci_service.access.service import SessionDep, require_read, require_write
from gprojci_service.models import now
from gprojci_service.schedules import repository, service
from gprojci_service.schedules.schemas import ScheduleOut, ScheduleSet

router = APIRouter(tags=["schedules"])
READ = [Depends(require_read, scope="function")]
WRITE = [Depends(require_write, scope="function")]


@router.get("/schedules", dependencies=READ)
def list_schedules(session: SessionDep) -> list[ScheduleOut]:
    """The timetables of all projects."""
    return [service.view(*row) for row in repository.all_schedules(session)]


@router.get("/projects/{owner}/{name}/schedule", dependencies=READ)
def get_schedule(session: SessionDep, owner: str, name: str) -> ScheduleOut:
    """When the project's default branch is measured anew."""
    return service.view(*service.of_project(session, f"{owner}/{name}"))


@router.put("/projects/{owner}/{name}/schedule", dependencies=WRITE)
def set_schedule(session: SessionDep, owner: str, name: str, body: ScheduleSet) -> ScheduleOut:
    """Sets the timetable, in the place of the one there is."""
    return service.put(session, f"{owner}/{name}", body.cron, now())


@router.delete("/projects/{owner}/{name}/schedule", status_code=204, dependencies=WRITE)
def remove_schedule(session: SessionDep, owner: str, name: str) -> None:
    """Removes the timetable."""
    service.remove(session, f"{owner}/{name}")
