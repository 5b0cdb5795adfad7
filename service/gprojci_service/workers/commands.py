"""Commands `gprojci worker …`: who measures, who is to stop, and whose host is borrowed."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import click
import httpx

from gprojci_service.client import POLL_SECONDS, ServiceGroup, call, note, persist, poll, show, table
from gprojci_service.workers.foreground import Signalled, run, signals_raise, signals_wait


@click.group(cls=ServiceGroup)
def worker() -> None:
    """Workers of a running service."""


@worker.command("list")
@click.pass_obj
def worker_list(client: httpx.Client) -> None:
    """Lists workers with the jobs that they measure."""
    found = call(client, "GET", "/workers")
    show(found, table(("worker", "hardware", "job", "seen", ""), map(_row, found)) or ["no worker has ever said hello"])


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    seen = f"{one['last_seen_at'][:19]} UTC"
    return one["name"], one["hardware"], one["job_id"] or "–", seen, "drained" if one["draining_at"] else ""


@worker.command("drain")
@click.argument("name")
@click.option("--wait/--no-wait", default=False, help="Wait until it has finished the job that it measures.")
@click.pass_obj
def worker_drain(client: httpx.Client, name: str, wait: bool) -> None:
    """Gives worker NAME no more work, until it is resumed; the job that it measures now it finishes."""
    drained = call(client, "POST", _path(name, "drain"))
    if wait:
        drained = _idle(client, drained)
    busy = f"after job {drained['job_id']}" if drained["job_id"] else "now"
    show(drained, [f"{name} gets no more work; it is idle {busy}"])


@worker.command("resume")
@click.argument("name")
@click.pass_obj
def worker_resume(client: httpx.Client, name: str) -> None:
    """Gives a drained worker work again."""
    show(call(client, "POST", _path(name, "resume")), [f"{name} gets work again"])


@worker.command("borrow", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def worker_borrow(client: httpx.Client, name: str, command: tuple[str, ...]) -> None:
    """Runs COMMAND while worker NAME gets no work: for what needs the GPU of its host to itself.

    It finishes the job that it measures first. Afterwards it gets work again, however the command ended, whose exit
    code is that of this one. Signals reach the command.
    """
    if shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no command {command[0]!r}")
    try:
        with signals_raise(), ExitStack() as borrowed:
            with signals_wait():
                drained = _taken(client, name)
                borrowed.callback(_give_back, client, name)
            _idle(client, drained)
            note(f"{name} is idle and gets no work")
            code = run(command)
    except Signalled as signalled:
        code = signalled.exit_code
    sys.exit(code)


def _taken(client: httpx.Client, name: str) -> dict[str, Any]:
    """A worker that was given work until now, drained."""
    try:
        found: dict[str, Any] = call(client, "POST", _path(name, "drain"), params={"unless_drained": True})
    except (httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError):  # it was sent, and not answered
        note(f"{name} may be drained now: gprojci worker list says so, gprojci worker resume {name} undoes it")
        raise
    return found


def _give_back(client: httpx.Client, name: str) -> None:
    try:
        persist(client, "POST", _path(name, "resume"))
    except BaseException:
        note(f"{name} is still drained: gprojci worker resume {name}")
        raise
    note(f"{name} gets work again")


def _idle(client: httpx.Client, drained: dict[str, Any]) -> dict[str, Any]:
    """A drained worker once it has finished the job that it measures."""
    said = None
    while job := drained["job_id"]:
        if job != said:
            note(f"{drained['name']} measures job {job}")
            said = job
        time.sleep(POLL_SECONDS)
        drained = next(one for one in poll(client, "/workers").json() if one["name"] == drained["name"])
    return drained


def _path(name: str, action: str) -> str:
    return f"/workers/{quote(name, safe='')}/{action}"
