"""`gprojci doctor`: looks at everything that the service stands on, and says of what is wrong what to do."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

import httpx
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from sqlalchemy import func, make_url, select
from sqlalchemy.exc import SQLAlchemyError

from gprojci_service.context import Context
from gprojci_service.github.app import COMMENTING, READING, REPORTING
from gprojci_service.github.rest import Failure
from gprojci_service.models import now
from gprojci_service.operating import repository, service
from gprojci_service.queue import SERVICE_QUEUE

PATIENCE_SECONDS = 5.0
LEAST_FREE_BYTES = 5 * 2**30
MOST_SKEW = timedelta(seconds=30)
"""GitHub takes a JWT whose times are off by less than a minute."""

Outcome = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    outcome: Outcome
    found: str
    to_do: str = ""
    """What sets it right; empty where nothing is wrong."""


def examine(context: Context) -> Iterator[Check]:
    """Looks at one thing after the other; those that stand on a database which does not answer are left out."""
    answers = database(context)
    yield answers
    if answers.outcome == "ok":
        yield schema(context)
        yield clock_of_database(context)
        yield from workers(context)
        yield webhooks(context)
    yield broker(context)
    yield tasks(context)
    yield disk(context)
    yield credentials(context)
    yield from github_clock(context)
    yield public_address(context)


def database(context: Context) -> Check:
    backend = make_url(context.settings.database_url).get_backend_name()
    began = time.monotonic()
    try:
        service.schema_revision(context)
    except SQLAlchemyError as error:
        why = str(getattr(error, "orig", error)).strip().splitlines()[0]
        return Check("database", "wrong", why, "GPROJCI_DATABASE_URL: is the address right, and the server running?")
    return Check("database", "ok", f"{backend} answers in {1000 * (time.monotonic() - began):.0f} ms")


def schema(context: Context) -> Check:
    present, wanted = service.schema_revision(context), service.newest_revision()
    if present == wanted:
        return Check("schema", "ok", f"revision {present}")
    if present is not None and present > wanted:
        return Check("schema", "warning", f"revision {present}, newer than {wanted}", "upgrade this program")
    return Check("schema", "wrong", f"revision {present or 'none'}, not {wanted}", "run `gprojci migrate`")


def clock_of_database(context: Context) -> Check:
    if context.database.engine.dialect.name != "postgresql":
        return Check("clock", "ok", "SQLite is on this machine")
    with context.database.session(writes=False) as session:
        told = session.scalar(select(func.clock_timestamp()))
    assert told is not None
    return _clock("PostgreSQL", told)


def github_clock(context: Context) -> Iterator[Check]:
    """GitHub refuses an App whose clock is wrong, so only an App's clock is looked at."""
    if context.settings.github_app_id is None:
        return
    try:
        told = httpx.get(context.settings.github_api_url, timeout=PATIENCE_SECONDS).headers.get("date")
    except httpx.HTTPError:
        return  # the credentials' check has said so
    if told:
        yield _clock("GitHub", parsedate_to_datetime(told))


def _clock(whose: str, told: datetime) -> Check:
    apart = abs(datetime.now(UTC) - told.astimezone(UTC))
    found = f"{apart.total_seconds():.0f} s from {whose}'s"
    if apart <= MOST_SKEW:
        return Check("clock", "ok", found)
    return Check(
        "clock", "wrong", found, "leases and GitHub's tokens need right clocks: run chrony or systemd-timesyncd"
    )


def broker(context: Context) -> Check:
    try:
        return Check("broker", "ok", f"{context.queue.length(SERVICE_QUEUE)} messages wait for the task worker")
    except (OperationalError, RedisError, OSError) as error:
        return Check("broker", "wrong", str(error), "GPROJCI_BROKER_URL: is the address right, and Redis running?")


def tasks(context: Context) -> Check:
    start = "start one: `celery -A gprojci_service.task_worker worker -Q service --beat`"
    try:
        queues = context.queue.celery.control.inspect(timeout=2).active_queues() or {}
    except (OperationalError, RedisError, OSError):
        return Check("task worker", "wrong", "cannot be asked without the broker", "set the broker right first")
    nodes = [node for node, listens in queues.items() if any(one["name"] == SERVICE_QUEUE for one in listens)]
    if not nodes:
        return Check("task worker", "wrong", "none listens: webhooks are stored and not processed", start)
    return Check("task worker", "ok", ", ".join(sorted(nodes)))


def disk(context: Context) -> Check:
    path = Path(context.settings.upload_dir).resolve()
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if not os.access(there, os.W_OK):
        return Check("disk", "wrong", f"{there} cannot be written", "GPROJCI_UPLOAD_DIR: give it to the service's user")
    free = shutil.disk_usage(there).free
    found = f"{free / 2**30:.0f} GiB free for {path}"
    if free < LEAST_FREE_BYTES:
        return Check("disk", "warning", found, "make room: uploaded input sets are kept there")
    return Check("disk", "ok", found)


def credentials(context: Context) -> Check:
    """Asks GitHub who it takes us for."""
    try:
        who, granted = context.github.identity()
    except Failure as failure:
        right = "GPROJCI_GITHUB_APP_ID and its key, GPROJCI_GITHUB_TOKEN, GPROJCI_GITHUB_API_URL: are they right?"
        return Check("GitHub", "wrong", str(failure), right)
    if granted is None:
        to_do = "" if who else "set GPROJCI_GITHUB_APP_ID and its key (service/README.md, Create the App)"
        return Check(
            "GitHub", "ok" if who else "warning", who or "no credentials: reports are recorded, not sent", to_do
        )
    ranks = {"read": 1, "write": 2, "admin": 3}
    asked = READING | COMMENTING | REPORTING
    lacks = [f"{name}: {level}" for name, level in asked.items() if ranks.get(granted.get(name, ""), 0) < ranks[level]]
    if lacks:
        return Check(
            "GitHub", "wrong", f"{who} lacks {', '.join(lacks)}", "grant it in the App's settings, and accept it"
        )
    return Check("GitHub", "ok", f"{who}, with all permissions")


def public_address(context: Context) -> Check:
    url = context.settings.public_url
    try:
        there = httpx.get(f"{url}/healthz", timeout=PATIENCE_SECONDS).is_success
    except httpx.HTTPError:
        there = False
    if there:
        return Check("public address", "ok", url)
    to_do = (
        "GPROJCI_PUBLIC_URL: people and GitHub must reach the web server there; is it running, and the proxy before it?"
    )
    return Check("public address", "warning", f"{url} does not answer from here", to_do)


def workers(context: Context) -> Iterator[Check]:
    """A worker for each hardware class that jobs are made for or wait for."""
    silent = now() - timedelta(seconds=context.settings.lease_seconds)
    with context.database.session(writes=False) as session:
        there = [worker for worker, _ in repository.workers(session) if worker.last_seen_at > silent]
        waiting = {hardware for hardware, state, _, _ in repository.open_jobs(session) if state == "queued"}
    for hardware in sorted(waiting | set(context.settings.default_hardware)):
        names = [worker.name for worker in there if worker.hardware == hardware and worker.draining_at is None]
        drained = [worker.name for worker in there if worker.hardware == hardware and worker.draining_at is not None]
        name = f"worker of {hardware}"
        if names:
            yield Check(name, "ok", ", ".join(names))
        elif drained:
            to_do = f"`gprojci worker resume {drained[0]}`"
            yield Check(name, "warning", f"{', '.join(drained)}: drained", to_do)
        else:
            to_do = (
                f"start `gprojci-worker` on a host of class {hardware}; `gprojci-worker --doctor` says what it lacks"
            )
            yield Check(name, "wrong" if hardware in waiting else "warning", "none is there", to_do)


def webhooks(context: Context) -> Check:
    with context.database.session(writes=False) as session:
        waiting, since = repository.webhooks_waiting(session)
    if since is not None and now() - since > timedelta(minutes=1):
        found = f"{waiting} wait, the oldest since {since:%Y-%m-%d %H:%M} UTC"
        return Check("webhooks", "wrong", found, "see to the task worker and its log")
    return Check("webhooks", "ok", f"{waiting} wait to be processed")
