"""What the schedule endpoints take and give."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class ScheduleSet(BaseModel):
    """When the default branch is measured anew."""

    cron: str = Field(max_length=100, description="Five fields of cron, in UTC: `0 2 * * *` is every night at two.")


class ScheduleOut(BaseModel):
    """A project's timetable."""

    project: str
    default_branch: str
    cron: str
    next_run_at: datetime
    last_run_at: datetime | None
    last_outcome: str | None
