"""Commands `gprojci doctor`, `backup` and `restore`, which run where the service runs, with its settings."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from gprojci_service.context import Context
from gprojci_service.operating import backup as backups
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


@click.command("backup")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def backup(directory: Path) -> None:
    """Writes database and uploaded input sets into DIRECTORY, a new one, while the service runs."""
    made = backups.backup(Context.open(load_settings()), directory)
    click.echo(f"{directory}: {len(made['sha256'])} files, schema {made['revision']}")


@click.command("restore")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
def restore(directory: Path) -> None:
    """Fills an empty database and the upload directory from a backup in DIRECTORY, and migrates the schema."""
    made = backups.restore(Context.open(load_settings()), directory)
    click.echo(f"restored what version {made['version']} wrote at {made['created_at']}")
