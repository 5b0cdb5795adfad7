"""Command `gprojci doctor`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from gprojci_service.context import Context
from gprojci_service.operating.doctor import examine
from gprojci_service.settings import load_settings

MARKS = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  "}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def doctor(as_json: bool) -> None:
    """Checks what the service stands on and says what to do; exit code 3 where something is wrong.

    Run it where the service runs, with its settings. Looks at database, schema, clocks, workers, webhooks, broker, task
    worker, disk, GitHub's credentials and the public address.
    """
    context, checks = Context.open(load_settings()), []
    for check in examine(context):
        checks.append(check)
        if not as_json:
            click.echo(f"{MARKS[check.outcome]}  {check.name}: {check.found}")
            if check.to_do:
                click.echo(f"         → {check.to_do}")
    context.database.close()
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], indent=1))
    sys.exit(3 if any(check.outcome == "wrong" for check in checks) else 0)
