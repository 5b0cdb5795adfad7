"""How the commands speak to a running service: the options they share, a call, and how an answer is shown."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import httpx

from gprojci_service.untrusted_text import ascii_controls, clean

DEFAULT_URL = "http://127.0.0.1:8000"
POLL_SECONDS = 2.0
# A service that is started anew must not end a script that waits for it.
OUTAGE_SECONDS = 60.0
AWAY = (502, 503, 504)
"""Answers that a proxy gives, or a service that is starting: to be asked again."""
OUTPUT = click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write; default: standard output."
)
"""Of commands that `write`."""
_URL, _TOKEN, _JSON = "gprojci.url", "gprojci.token", "gprojci.json"


def _remember(key: str) -> Any:
    def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value:
            context.meta[key] = value

    return callback


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--url"],
            help=f"Address of the service (GPROJCI_URL; {DEFAULT_URL}).",
            expose_value=False,
            callback=_remember(_URL),
        ),
        click.Option(
            ["--token"],
            help="Token of scope write (GPROJCI_TOKEN).",
            expose_value=False,
            callback=_remember(_TOKEN),
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            help="Print the answer as JSON.",
            expose_value=False,
            callback=_remember(_JSON),
        ),
    ]


class ServiceCommand(click.Command):
    """A command about a running service: it has `--url`, `--token` and `--json`, and gets a client of `/api/v1`."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += _shared_options()

    def invoke(self, context: click.Context) -> Any:
        """Runs it with the client as the context's object."""
        context.obj = context.with_resource(connect(context))
        return super().invoke(context)


class ServiceGroup(click.Group):
    """A group whose commands are about a running service; what they share may also stand before their names."""

    command_class = ServiceCommand

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += _shared_options()


def connect(context: click.Context) -> httpx.Client:
    """An HTTP client of the service that options or environment name; it contacts nobody before it is used."""
    url = context.meta.get(_URL) or os.environ.get("GPROJCI_URL") or DEFAULT_URL
    token = context.meta.get(_TOKEN) or os.environ.get("GPROJCI_TOKEN")
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url (GPROJCI_URL): {url!r} must begin with http:// or https://")
    headers = {"Authorization": f"Bearer {token.strip()}"} if token else {}
    return httpx.Client(base_url=url.rstrip("/") + "/api/v1", headers=headers, timeout=30)


def named_service() -> str | None:
    """What `--url` was given, if it was."""
    url: str | None = click.get_current_context().meta.get(_URL)
    return url


def page(client: httpx.Client, path: str) -> str:
    """Address of a page of the service."""
    return str(client.base_url).rstrip("/").removesuffix("/api/v1") + path


def wants_json() -> bool:
    """Whether `--json` was given."""
    return bool(click.get_current_context().meta.get(_JSON))


def show(value: Any, lines: Iterable[str]) -> None:
    """Prints an answer: `value` as one JSON document where `--json` asks for it, else the lines."""
    if wants_json():
        click.echo(ascii_controls(json.dumps(value, indent=1, ensure_ascii=False)))
    else:
        for line in lines:
            click.echo(clean(line))


def note(text: str) -> None:
    """Says something beside the answer: to people, never into the JSON or a pipe."""
    if not wants_json():
        click.echo(clean(text), err=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a table whose columns are as wide as their widest cell; none without rows."""
    found = [[clean(str(cell)) for cell in row] for row in rows]
    cells = [header, *found] if found else []
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))] if cells else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def call(client: httpx.Client, method: str, path: str, **request: Any) -> Any:
    """The JSON of the answer; an error of the service ends the command with its detail in one line."""
    return answer(client, method, path, **request).json()


def answer(client: httpx.Client, method: str, path: str, **request: Any) -> httpx.Response:
    """The answer where it is a success; an error of the service ends the command with its detail in one line."""
    response = client.request(method, path, **request)
    if not response.is_success:
        end(response)
    return response


def write(client: httpx.Client, path: str, output: Path | None, **request: Any) -> None:
    """Writes the body of a GET's answer into a file, or to the standard output, as it comes; errors as `answer`."""
    with client.stream("GET", path, **request) as response:
        if not response.is_success:
            response.read()
            end(response)
        # Atomic: a file that is there is whole.
        with click.open_file(str(output or "-"), "wb", atomic=output is not None) as target:
            for chunk in response.iter_bytes():
                target.write(chunk)


def end(response: httpx.Response) -> None:
    """Ends the command with an error of the service in one line: exit code 3 for its faults, 2 for the caller's."""
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text[:300]
    if response.status_code == 401 and "GPROJCI_TOKEN" not in os.environ:
        detail += "; give it with --token or GPROJCI_TOKEN"
    click.echo(f"gprojci: HTTP {response.status_code}: {clean(str(detail))}", err=True)
    sys.exit(3 if response.status_code >= 500 else 2)


def poll(client: httpx.Client, path: str, **request: Any) -> httpx.Response:
    """As `answer` of a GET, for commands that wait: a service that is away for up to a minute is waited for."""
    return persist(client, "GET", path, **request)


def persist(client: httpx.Client, method: str, path: str, **request: Any) -> httpx.Response:
    """As `answer` of what may be asked twice: a service that is away for up to a minute is waited for."""
    give_up = time.monotonic() + OUTAGE_SECONDS
    while True:
        try:
            response = client.request(method, path, **request)
            if response.status_code not in AWAY or time.monotonic() > give_up:
                break
        except httpx.TransportError:
            if time.monotonic() > give_up:
                raise
        time.sleep(POLL_SECONDS)
    if not response.is_success:
        end(response)
    return response
