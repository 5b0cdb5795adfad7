"""Commands `gprojci notification …`: who is told of what happens to a project."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
import httpx

from gprojci_service.client import ServiceGroup, answer, call, show
from gprojci_service.models.notification_channel import CHANNEL_KINDS, SEVERITIES
from gprojci_service.notifications.events import EVENTS

WAIT_SECONDS = 30.0


@click.group(cls=ServiceGroup)
def notification() -> None:
    """Channels of a running service, and what they were told."""


@notification.command("add")
@click.argument("project")
@click.argument("name")
@click.option("--kind", required=True, type=click.Choice(CHANNEL_KINDS), help="webhook: signed JSON.")
@click.option("--address", required=True, help="Where to post to, https://…; - reads it from the standard input.")
@click.option("--severity", default="warning", show_default=True, type=click.Choice(SEVERITIES), help="The least.")
@click.option(
    "--event", multiple=True, type=click.Choice(tuple(EVENTS)), help="May be given more than once; default: all."
)
@click.pass_obj
def notification_add(
    client: httpx.Client,
    project: str,
    name: str,
    kind: str,
    address: str,
    severity: str,
    event: tuple[str, ...],
) -> None:
    """Adds a channel to a project and prints its secret, this once."""
    url = sys.stdin.readline().strip() if address == "-" else address
    body = {"project": project, "name": name, "kind": kind, "url": url, "minimum_severity": severity}
    made = call(client, "POST", "/channels", json={**body, "events": list(event) or None})
    show(made, [f"channel {made['id']}" + (f", signed with {made['secret']}" if made["secret"] else "")])


@notification.command("list")
@click.argument("project")
@click.pass_obj
def notification_list(client: httpx.Client, project: str) -> None:
    """Lists a project's channels, without their secrets."""
    found = call(client, "GET", f"/projects/{project}/channels")
    show(found, map(_line, found))


def _line(channel: dict[str, Any]) -> str:
    wants = ", ".join(channel["events"]) if channel["events"] else "all events"
    reason = channel["disabled_reason"]
    state = f"disabled: {reason}" if reason else f"from {channel['minimum_severity']} on"
    return f"{channel['id']:5}  {channel['kind']:8} {channel['name']:20} {channel['host']}  {wants}, {state}"


@notification.command("remove")
@click.argument("channel_id", type=int)
@click.pass_obj
def notification_remove(client: httpx.Client, channel_id: int) -> None:
    """Removes a channel."""
    answer(client, "DELETE", f"/channels/{channel_id}")
    show({"id": channel_id, "removed": True}, [f"channel {channel_id} is removed"])


@notification.command("test")
@click.argument("channel_id", type=int)
@click.pass_obj
def notification_test(client: httpx.Client, channel_id: int) -> None:
    """Sends a test and says what the receiver answered; exit code 3 when it did not take it."""
    made = call(client, "POST", f"/channels/{channel_id}/test")
    end = time.monotonic() + WAIT_SECONDS
    while made["detail"] is None and time.monotonic() < end:
        time.sleep(0.5)
        told = call(client, "GET", f"/channels/{channel_id}/notifications")
        made = next(one for one in told if one["id"] == made["id"])
    show(made, [f"{made['state']}: {made['detail'] or 'nobody sent it yet; is the task worker running?'}"])
    sys.exit(0 if made["state"] == "sent" else 3)


@notification.command("log")
@click.argument("channel_id", type=int)
@click.pass_obj
def notification_log(client: httpx.Client, channel_id: int) -> None:
    """Lists what a channel was told and what became of it, newest first."""
    told = call(client, "GET", f"/channels/{channel_id}/notifications")
    lines = (
        f"{one['created_at'][:16]}  {one['state']:8} {one['event']:22} {one['attempts']} tries  {one['detail'] or ''}"
        for one in told
    )
    show(told, lines)
