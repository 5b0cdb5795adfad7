"""How the commands speak to a running service over its REST API."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
import httpx


def speaks_to_the_service(group: Callable[[], None]) -> Callable[..., None]:
    """Gives a command group `--url` and `--token`, and its commands an HTTP client of `/api/v1` as their object."""

    @click.option(
        "--url",
        envvar="GPROJCI_URL",
        default="http://127.0.0.1:8000",
        show_default=True,
        help="Address of the service (GPROJCI_URL).",
    )
    @click.option("--token", "secret", envvar="GPROJCI_TOKEN", help="Token of scope write (GPROJCI_TOKEN).")
    @click.pass_context
    @wraps(group)
    def connected(context: click.Context, url: str, secret: str | None) -> None:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        client = httpx.Client(base_url=url.rstrip("/") + "/api/v1", headers=headers, timeout=30)
        context.obj = context.with_resource(client)
        group()

    return connected


def call(client: httpx.Client, method: str, path: str, **request: Any) -> Any:
    """The JSON of the answer; an error of the service ends the command with its detail in one line."""
    return answer(client, method, path, **request).json()


def answer(client: httpx.Client, method: str, path: str, **request: Any) -> httpx.Response:
    """The answer where it is a success; an error of the service ends the command with its detail in one line."""
    response = client.request(method, path, **request)
    if response.is_success:
        return response
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError):
        detail = response.text[:300]
    click.echo(f"gprojci: HTTP {response.status_code}: {detail}", err=True)
    sys.exit(3 if response.status_code >= 500 else 2)
