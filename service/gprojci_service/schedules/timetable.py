"""When a cron expression is due: five fields in UTC, as Celery's crontab reads them."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import Celery
from celery.schedules import crontab

from gprojci_service.errors import InvalidRequest

_APP = Celery("gprojci-timetables", set_as_current=False)  # it says what the time zone is: UTC
EXAMPLE = "0 2 * * *"


def next_run(cron: str, after: datetime) -> datetime:
    """The first moment after `after` at which the expression is due.

    Raises:
        InvalidRequest: it is no cron expression, or one that is never due.
    """
    try:
        timetable = crontab.from_string(cron)
        timetable.app = _APP
        timetable.nowfun = lambda: after.astimezone(UTC)
        moment: datetime = after.astimezone(UTC) + timetable.remaining_estimate(after.astimezone(UTC))
    except (ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise InvalidRequest(
            f"cron {cron!r}: {error}; write minute, hour, day of the month, month and day of the week in UTC, "
            f"such as {EXAMPLE!r} for every night at two"
        ) from error
    return moment
