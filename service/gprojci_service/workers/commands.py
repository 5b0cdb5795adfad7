"""Commands `gprojci worker …`: who measures, and who is to stop."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import click
import httpx

from gprojci_service.client import POLL_SECONDS, ServiceGroup, call, note, poll, show, table


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
    drained = call(client, "POST", f"/workers/{quote(name, safe='')}/drain")
    while wait and drained["job_id"]:
        note(f"{name} measures job {drained['job_id']}")
        time.sleep(POLL_SECONDS)
        drained = next(one for one in poll(client, "/workers").json() if one["name"] == name)
    busy = f"after job {drained['job_id']}" if drained["job_id"] else "now"
    show(drained, [f"{name} gets no more work; it is idle {busy}"])


@worker.command("resume")
@click.argument("name")
@click.pass_obj
def worker_resume(client: httpx.Client, name: str) -> None:
    """Gives a drained worker work again."""
    show(call(client, "POST", f"/workers/{quote(name, safe='')}/resume"), [f"{name} gets work again"])
