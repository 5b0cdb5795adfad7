"""Command `gprojci gate`: may this commit be merged."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
import httpx

from gprojci_service import local_git
from gprojci_service.client import POLL_SECONDS, ServiceCommand, page, poll, show
from gprojci_service.progress import progress

EXIT_CODES = {"pass": 0, "neutral": 0, "fail": 1, "error": 3, "pending": 3}


@click.command("gate", cls=ServiceCommand)
@click.argument("sha", default="HEAD")
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is decided.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Wait no longer than so many seconds.")
@click.pass_obj
def gate(client: httpx.Client, sha: str, project: str | None, wait: bool, timeout: float | None) -> None:
    """Says whether commit SHA (default: HEAD of the checkout) may be merged.

    Exit code 0: pass or neutral; 1: fail; 3: error, or not decided yet.
    """
    name, commit = local_git.project_named(client, project), local_git.commit_or_prefix(sha)
    give_up = time.monotonic() + timeout if timeout is not None else float("inf")
    with progress("gate", 1) as bar:
        while True:
            found: dict[str, Any] = poll(client, f"/projects/{name}/gate/{commit}").json()
            if found["word"] != "pending" or not wait or time.monotonic() >= give_up:
                break
            bar.reach(0, ", ".join(f"job {job['id']} {job['state']}" for job in found["jobs"]))
            time.sleep(POLL_SECONDS)
    lines = [f"{found['word']}: {found['head_sha']}"]
    for job in found["jobs"]:
        lines.append(f"  {job['hardware']}: {job['word']}: {job['summary']}  {page(client, '/jobs/' + str(job['id']))}")
    show(found, lines)
    sys.exit(EXIT_CODES[found["word"]])
