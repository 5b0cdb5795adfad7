"""Commands about results: `gprojci compare` and `gprojci export`."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import httpx

from gprojci_service import local_git
from gprojci_service.client import OUTPUT, ServiceCommand, call, show, table, wants_json, write
from gprojci_service.jobs.commands import is_job
from gprojci_service.pages.formatting import DASH, fraction, memory, ratio, seconds, signed_percent


@click.command("compare", cls=ServiceCommand)
@click.argument("base")
@click.argument("head")
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 where anything is worse.")
@click.option("--all", "everything", is_flag=True, help="Also what is the same.")
@click.pass_obj
def compare(client: httpx.Client, base: str, head: str, project: str | None, exit_code: bool, everything: bool) -> None:
    """Compares commits BASE and HEAD, or two jobs by their numbers: every metric with its interval and verdict."""
    if is_job(base) != is_job(head):
        raise click.UsageError("BASE and HEAD: give two commits or the numbers of two jobs")
    if is_job(base):
        found = call(client, "GET", f"/jobs/{base}/compare/{head}")
    else:
        name = local_git.project_named(client, project)
        sides = {"base": local_git.commit_or_prefix(base), "head": local_git.commit_or_prefix(head)}
        found = call(client, "GET", f"/projects/{name}/compare", params=sides)
    show(found, _lines(found, everything))
    sys.exit(1 if exit_code and found["worse"] else 0)


def _lines(found: dict[str, Any], everything: bool) -> list[str]:
    shown = [change for change in found["changes"] if everything or change["verdict"] != "same"]
    rest = len(found["changes"]) - len(shown)
    session = "in one session" if found["same_session"] else "in different sessions: times only as ratios to the anchor"
    lines = [f"{found['base'][:10]} → {found['head'][:10]}, {session}", *filter(None, [found["warning"]])]
    if shown:
        lines += table(("verdict", "change", "interval", "base", "head", "metric", "backend", "case"), map(_row, shown))
    return [
        *lines,
        f"{found['worse']} worse, {found['better']} better" + (f", {rest} the same (--all)" if rest else ""),
    ]


def _row(change: dict[str, Any]) -> tuple[str, ...]:
    value = {"fraction": fraction, "seconds": seconds, "bytes": memory}.get(change["unit"], ratio)
    moved, low, high = change["change"], change["low"], change["high"]
    words = signed_percent(moved - 1) if moved is not None and moved < 10 else ratio(moved)
    interval = DASH if low is None else f"{signed_percent(low - 1)} to {signed_percent(high - 1)}"
    sides = (value(change["base"]), value(change["head"]))
    return change["verdict"], words, interval, *sides, change["metric"], change["backend"], change["case"]


@click.command("export", cls=ServiceCommand)
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl"]),
    help="jsonl: one JSON object a line, also with --json; default: csv.",
)
@click.option("--metric", help="Only this one, such as dq_error.")
@click.option("--backend", help="Only this one.")
@click.option("--case", help="Only this input set, shape or model.")
@click.option("--hardware", help="Only this hardware class, as reports name it.")
@click.option("--since", type=click.DateTime(), help="Only what was measured since then (UTC).")
@OUTPUT
@click.pass_obj
def export(
    client: httpx.Client,
    /,
    project: str | None,
    form: str | None,
    since: datetime | None,
    output: Path | None,
    **filters: str | None,
) -> None:
    """Writes the samples of all series of a project as CSV or JSON lines, oldest first."""
    name = local_git.project_named(client, project)
    chosen = {"format": form or ("jsonl" if wants_json() else "csv"), "since": since.isoformat() if since else None}
    parameters = {key: value for key, value in {**chosen, **filters}.items() if value}
    write(client, f"/projects/{name}/samples", output, params=parameters, timeout=300)
