"""Commands `gprojci bisect …`: which commit made it worse."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import click
import httpx

from gprojci_service import local_git
from gprojci_service.bisections.evidence import METRICS
from gprojci_service.client import POLL_SECONDS, ServiceGroup, call, note, page, poll, show, table
from gprojci_service.pages.formatting import DASH, signed_percent
from gprojci_service.progress import progress

# Found is what `1` means of the gate as well: there is a commit that is worse.
EXIT_CODES = {"running": 0, "found": 1, "not_worse": 0, "failed": 3, "cancelled": 3}


class _StartsUnlessTold(ServiceGroup):
    """Takes options without a command as those of `start`."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Puts `start` before options that are not the group's own."""
        return super().resolve_command(context, ["start", *args] if args[0].startswith("-") else args)


@click.group("bisect", cls=_StartsUnlessTold, context_settings={"ignore_unknown_options": True})
def bisect() -> None:
    """The first commit that made a metric worse: start, status, list, cancel.

    `gprojci bisect --good REV --metric NAME` is short for `gprojci bisect start`.
    """


@bisect.command("start")
@click.option("--good", required=True, help="A commit that is good; it must be an ancestor.")
@click.option("--bad", default="HEAD", show_default=True, help="A commit that is bad.")
@click.option("--metric", required=True, type=click.Choice(METRICS), help="What got worse.")
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.option("--backend", help="Default: that in which the bad commit is worst.")
@click.option("--case", help="Input set, shape or model; default: as --backend.")
@click.option("--hardware", help="Needed where the project is measured on several.")
@click.option(
    "--threshold",
    type=click.FloatRange(min=1, min_open=True),
    help="Ratio to the good commit from which on one is bad; default: half-way.",
)
@click.option(
    "--max-effort",
    type=click.Choice(["1", "2", "4", "8", "16"]),
    default="8",
    show_default=True,
    help="Up to how many times the pairs an unsure commit is timed with.",
)
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for what is found.")
@click.pass_obj
def bisect_start(
    client: httpx.Client, /, good: str, bad: str, project: str | None, max_effort: str, follow: bool, **chosen: Any
) -> None:
    """Searches between --good and --bad, along first parents. Needs a git checkout.

    The service searches, not this command: what is interrupted goes on, and `gprojci bisect status` shows it. Exit
    code 1: found; 0: the bad commit is not worse; 3: it failed.
    """
    commits = local_git.first_parent_range(good, bad)
    name = local_git.project_named(client, project)
    body = {"project": name, "good": local_git.full_sha(good), "commits": commits, "max_effort": int(max_effort)}
    made = call(client, "POST", "/bisections", json={**body, **chosen})
    steps = math.ceil(math.log2(len(commits))) if len(commits) > 1 else 0
    note(f"bisection {made['id']}: {len(commits)} commits, about {steps + 1} measurements")
    if follow:
        made = _follow(client, made["id"])
    show(made, _described(client, made))
    sys.exit(EXIT_CODES[made["state"]])


def _follow(client: httpx.Client, number: int) -> dict[str, Any]:
    try:
        with progress(f"bisection {number}", 1000) as bar:
            while True:
                found: dict[str, Any] = poll(client, f"/bisections/{number}").json()
                left = math.log2(max(found["remaining_count"], 1)) + (found["threshold"] is None)
                whole = math.log2(max(found["commits"], 1)) + 1
                job = f"job {found['job_id']}, " if found["job_id"] else ""
                bar.reach(round(1000 * (1 - left / whole)), f"{job}{found['remaining_count']} commits remain")
                if found["state"] != "running":
                    return found
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        note(f"\nit goes on without you: `gprojci bisect status {number}`, `gprojci bisect cancel {number}`")
        raise


@bisect.command("status")
@click.argument("bisection_id", type=int)
@click.option("-f", "--follow", is_flag=True, help="Wait for what is found.")
@click.pass_obj
def bisect_status(client: httpx.Client, bisection_id: int, follow: bool) -> None:
    """Says what was measured, what remains, and what was found; exit codes as of `start`."""
    found = _follow(client, bisection_id) if follow else call(client, "GET", f"/bisections/{bisection_id}")
    show(found, _described(client, found))
    sys.exit(EXIT_CODES[found["state"]])


def _described(client: httpx.Client, found: dict[str, Any]) -> list[str]:
    where = " on ".join(filter(None, (found["backend"], found["case"]))) or "the worst backend and case"
    limit = f"bad from {signed_percent(found['threshold'] - 1)} on" if found["threshold"] else "limit not known yet"
    lines = [f"bisection {found['id']} of {found['project']}: {found['metric']} of {where}, {limit}"]
    if found["findings"]:
        lines += table(("commit", "is", "over good", "interval", "job", ""), map(_row, found["findings"]))
    if found["state"] == "running":
        job = f"; waits for {page(client, '/jobs/' + str(found['job_id']))}" if found["job_id"] else ""
        return [*lines, f"running: {found['remaining_count']} commits remain{job}"]
    lines.append(f"{found['state'].replace('_', ' ')}: {found['detail']}")
    if found["state"] == "found" and found["first_bad"] is None:
        lines += [f"  {sha}" for sha in found["remaining"]]
    return lines


def _row(finding: dict[str, Any]) -> tuple[object, ...]:
    ratio, low, high = finding["ratio"], finding["low"], finding["high"]
    moved = DASH if ratio is None else signed_percent(ratio - 1)
    interval = DASH if low is None else f"{signed_percent(low - 1)} to {signed_percent(high - 1)}"
    more = f"{finding['effort']} × the pairs" if finding["effort"] > 1 else ""
    reused = "known before" if finding["reused"] else ""
    words = "; ".join(filter(None, (finding["reason"], more, reused)))
    return finding["sha"][:10], finding["word"], moved, interval, finding["job_id"] or DASH, words


@bisect.command("list")
@click.option("--project", help="Full name, owner/name.")
@click.pass_obj
def bisect_list(client: httpx.Client, project: str | None) -> None:
    """Lists bisections, newest first."""
    found = call(client, "GET", "/bisections", params={"project": project} if project else {})
    rows = ((item["id"], item["state"], item["project"], item["metric"], item["detail"] or "") for item in found)
    show(found, table(("id", "state", "project", "metric", "found"), rows))


@bisect.command("cancel")
@click.argument("bisection_id", type=int)
@click.pass_obj
def bisect_cancel(client: httpx.Client, bisection_id: int) -> None:
    """Ends a search and the job that it waits for."""
    ended = call(client, "POST", f"/bisections/{bisection_id}/cancel")
    show(ended, [f"bisection {bisection_id} is cancelled"])
