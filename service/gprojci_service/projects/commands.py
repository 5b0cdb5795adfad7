"""Commands `gprojci project …`: repositories under test."""

from __future__ import annotations

import sys

import click
import httpx

from gprojci_service.client import ServiceGroup, call, note, show, table


@click.group(cls=ServiceGroup)
def project() -> None:
    """Repositories under test: add, list, remove. The first webhook of one adds it too."""


@project.command("add")
@click.argument("repo")
@click.option("--clone-url", help="Where workers fetch it from; default: https://github.com/REPO.git.")
@click.option("--default-branch", default="main", show_default=True)
@click.option("--hardware", multiple=True, help="Hardware class; may be repeated. Default: the service's.")
@click.pass_obj
def project_add(
    client: httpx.Client, repo: str, clone_url: str | None, default_branch: str, hardware: tuple[str, ...]
) -> None:
    """Registers REPO (owner/name)."""
    body = {
        "name": repo,
        "clone_url": clone_url or f"https://github.com/{repo}.git",
        "default_branch": default_branch,
        "hardware": list(hardware) or None,
    }
    made = call(client, "POST", "/projects", json=body)
    show(made, [f"{made['name']} is registered; measure a commit with: gprojci submit {made['name']} SHA"])


@project.command("list")
@click.pass_obj
def project_list(client: httpx.Client) -> None:
    """Lists the projects."""
    found = call(client, "GET", "/projects")
    rows = (
        (item["name"], item["default_branch"], ", ".join(item["hardware"] or ["the service's"]), item["clone_url"])
        for item in found
    )
    show(found, table(("project", "branch", "hardware", "cloned from"), rows))


@project.command("remove")
@click.argument("repo")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def project_remove(client: httpx.Client, repo: str, yes: bool) -> None:
    """Deletes REPO with all its jobs and results, for ever, after saying what is lost and asking."""
    rows = call(client, "GET", f"/projects/{repo}/contents")["rows"]
    lost = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in rows.items() if name != "project")
    note(f"{repo}: this deletes its rows: {lost or 'none'}. It cannot be undone; a webhook registers the name anew.")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody is there to be asked: give --yes to delete it")
        if click.prompt("Type its full name to delete it", err=True) != repo:
            raise click.UsageError("another name was typed: nothing is deleted")
    gone = call(client, "DELETE", f"/projects/{repo}")
    show(gone, [f"{repo} is deleted"])
