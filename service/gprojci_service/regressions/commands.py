"""Commands `gprojci regression …`: what became worse on the default branch, and what is to become of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import httpx

from gprojci_service.client import ServiceGroup, call, show
from gprojci_service.models.regression import REGRESSION_STATES


@click.group(cls=ServiceGroup)
def regression() -> None:
    """Regressions of a running service."""


@regression.command("list")
@click.option("--project", help="Full name, owner/name.")
@click.option(
    "--state", multiple=True, type=click.Choice(("open", *REGRESSION_STATES)), help="May be given more than once."
)
@click.option("--owner", help="Who looks after it.")
@click.pass_obj
def regression_list(client: httpx.Client, project: str | None, state: tuple[str, ...], owner: str | None) -> None:
    """Lists regressions, newest first."""
    filters = {"project": project, "state": list(state), "owner": owner}
    found = call(client, "GET", "/regressions", params={key: value for key, value in filters.items() if value})
    show(found, (f"{one['id']:6}  {one['state']:12} {one['first_bad_sha'][:10]}  {one['summary']}" for one in found))


@regression.command("show")
@click.argument("regression_id", type=int)
@click.pass_obj
def regression_show(client: httpx.Client, regression_id: int) -> None:
    """Shows a regression with its series and its history."""
    found = call(client, "GET", f"/regressions/{regression_id}")
    show(found, _described(found))


def _described(found: dict[str, Any]) -> Iterator[str]:
    yield f"regression {found['id']} of {found['project']}: {found['state']}, owner {found['owner'] or 'nobody'}"
    yield f"{found['last_good_sha'] or '…'}..{found['first_bad_sha']}"
    for one in found["series"]:
        change = "over its limit" if one["change"] is None else f"{one['change']:+.2%}"
        yield f"  {one['metric']} of {one['backend']} on {one['case']} ({one['hardware']}): {change}"
    for one in found["events"]:
        what = " → ".join(word for word in (one["before"], one["after"]) if word)
        said = " ".join(word for word in (one["kind"], what, one["text"]) if word)
        yield f"  {one['created_at'][:16]}  {one['author']}: {said}"


@regression.command("ack")
@click.argument("regression_id", type=int)
@click.option("--reason", help="What is known of it.")
@click.option("--owner", help="Who looks after it.")
@click.pass_obj
def regression_ack(client: httpx.Client, regression_id: int, reason: str | None, owner: str | None) -> None:
    """Acknowledges a regression."""
    done = _change(client, regression_id, {"state": "acknowledged", "reason": reason})
    if owner is not None:
        done = call(client, "PUT", f"/regressions/{regression_id}/owner", json={"owner": owner})
    _say(done)


@regression.command("ignore")
@click.argument("regression_id", type=int)
@click.option("--reason", required=True, help="Why.")
@click.pass_obj
def regression_ignore(client: httpx.Client, regression_id: int, reason: str) -> None:
    """Ignores a regression, with a reason."""
    _say(_change(client, regression_id, {"state": "ignored", "reason": reason}))


@regression.command("fix")
@click.argument("regression_id", type=int)
@click.option("--commit", "sha", required=True, help="The commit that fixes it, a SHA or its beginning.")
@click.option("--reason", help="What was done.")
@click.pass_obj
def regression_fix(client: httpx.Client, regression_id: int, sha: str, reason: str | None) -> None:
    """Says that a commit fixes a regression."""
    _say(_change(client, regression_id, {"state": "fixed", "commit": sha, "reason": reason}))


@regression.command("reopen")
@click.argument("regression_id", type=int)
@click.option("--reason", help="Why.")
@click.pass_obj
def regression_reopen(client: httpx.Client, regression_id: int, reason: str | None) -> None:
    """Opens a fixed regression again."""
    _say(_change(client, regression_id, {"state": "reopened", "reason": reason}))


@regression.command("comment")
@click.argument("regression_id", type=int)
@click.argument("text")
@click.pass_obj
def regression_comment(client: httpx.Client, regression_id: int, text: str) -> None:
    """Adds a comment."""
    made = call(client, "POST", f"/regressions/{regression_id}/comments", json={"text": text})
    show(made, [f"regression {regression_id} has a comment of {made['author']}"])


def _change(client: httpx.Client, regression_id: int, body: dict[str, Any]) -> dict[str, Any]:
    done: dict[str, Any] = call(client, "POST", f"/regressions/{regression_id}/state", json=body)
    return done


def _say(done: dict[str, Any]) -> None:
    show(done, [f"regression {done['id']} is {done['state']}"])
