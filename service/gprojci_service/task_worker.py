"""The Celery application of the service: its tasks by name, and the timetable of those that find what was lost.

Run as `celery -A gprojci_service.task_worker worker -Q service`, with `--beat` in exactly one place.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from celery import Celery
from celery.schedules import schedule
from celery.signals import beat_embedded_init, setup_logging, worker_process_init, worker_process_shutdown

from gprojci_service import logs, queue, tracing
from gprojci_service.context import Context
from gprojci_service.github.client import Recorder, connect
from gprojci_service.settings import Settings, load_settings
from gprojci_service.tasks import TASKS

_PR_SET_PDEATHSIG = 1
# Timetables of projects are in whole minutes.
SCHEDULES_SECONDS = 60.0
RETENTION_SECONDS = 3600.0


@cache
def context() -> Context:
    """The connections of this process, opened after Celery has forked it."""
    return Context.open(load_settings())


def _bound(task: Callable[..., None]) -> Callable[..., None]:
    def run(*args: Any) -> None:
        with logs.fresh():
            task(context(), *args)

    return run


@setup_logging.connect
def _our_logs(**_: object) -> None:
    """With a receiver of this signal Celery leaves logging alone."""
    logs.configure(load_settings())


@beat_embedded_init.connect
def _die_with_the_parent(**_: object) -> None:
    """The timetable must not outlive a killed task worker; of the pool's processes Celery sees to that itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _trace(**_: object) -> None:
    tracing.start("gprojci-tasks", context().database.engine)


def _end_traces(**_: object) -> None:
    tracing.stop()


def build() -> Celery:
    """The application with all tasks registered."""
    settings = load_settings()
    if tracing.wanted():
        worker_process_init.connect(_trace)
        worker_process_shutdown.connect(_end_traces)
    celery = queue.celery_app(settings.broker_url)
    for name, task in TASKS.items():
        celery.task(name=name)(_bound(task))
    celery.conf.beat_schedule = timetable(settings)
    celery.conf.beat_scheduler = "celery.beat:Scheduler"  # keeps no times in a file: they are of this process alone
    return celery


def timetable(settings: Settings) -> dict[str, dict[str, Any]]:
    """What runs again and again; without credentials nobody at GitHub can be asked."""
    entries = {
        "reaper": _every(settings.reaper_seconds, queue.REAP),
        "schedules": _every(SCHEDULES_SECONDS, queue.RUN_SCHEDULES),
    }
    if not isinstance(connect(settings), Recorder):
        entries["reconcile"] = _every(settings.reconcile_seconds, queue.RECONCILE)
    if settings.raw_values_days is not None:
        entries["retention"] = _every(RETENTION_SECONDS, queue.THIN_REPORTS)
    return entries


def _every(seconds: float, task: str) -> dict[str, Any]:
    # What was not begun in its time is left to the next.
    return {"task": task, "schedule": schedule(seconds, nowfun=_steady_time), "options": {"expires": seconds}}


def _steady_time() -> datetime:
    """Time for telling intervals: once the wall clock was set back, nothing would be due until it has caught up."""
    return datetime.fromtimestamp(time.monotonic(), UTC)


app = build()
