"""Commands `gprojci schedule …`: the default branch, measured anew at set times."""

from __future__ import annotations

import click
import httpx

from gprojci_service import local_git
from gprojci_service.client import ServiceGroup, answer, call, show, table


@click.group(cls=ServiceGroup)
def schedule() -> None:
    """The default branch, measured anew at set times: set, list, remove."""


@schedule.command("set")
@click.argument("cron", default="0 2 * * *")
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.pass_obj
def schedule_set(client: httpx.Client, cron: str, project: str | None) -> None:
    """Sets when: CRON is minute, hour, day, month and weekday in UTC; default: '0 2 * * *', every night at two."""
    name = local_git.project_named(client, project)
    made = call(client, "PUT", f"/projects/{name}/schedule", json={"cron": cron})
    show(made, [f"{name}: {made['default_branch']} is measured next at {made['next_run_at'][:16]} UTC"])


@schedule.command("list")
@click.pass_obj
def schedule_list(client: httpx.Client) -> None:
    """Lists the schedules of all projects, and what became of their last runs."""
    found = call(client, "GET", "/schedules")
    rows = ((item["project"], item["cron"], item["next_run_at"][:16], item["last_outcome"] or "–") for item in found)
    show(found, table(("project", "cron", "next (UTC)", "last"), rows))


@schedule.command("remove")
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.pass_obj
def schedule_remove(client: httpx.Client, project: str | None) -> None:
    """Removes the schedule of a project."""
    name = local_git.project_named(client, project)
    answer(client, "DELETE", f"/projects/{name}/schedule")
    show({"project": name, "removed": True}, [f"{name} has no schedule any more"])
