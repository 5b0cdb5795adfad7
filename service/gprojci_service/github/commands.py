"""Commands `gprojci github …`: what is set up between a running service and GitHub."""

from __future__ import annotations

import click
import httpx

from gprojci_service.client import ServiceGroup, call, show


@click.group(cls=ServiceGroup)
def github() -> None:
    """What is set up between a running service and GitHub."""


@github.command("setup")
@click.option("--organization", help="Organisation that the App is to belong to; default: the account signed in.")
@click.pass_obj
def github_setup(client: httpx.Client, organization: str | None) -> None:
    """Prints the address, valid for an hour, of a page that creates a GitHub App and shows its credentials once."""
    made = call(client, "POST", "/github/setup", json={"organization": organization})
    show(made, [made["address"]])
