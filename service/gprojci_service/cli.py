"""Command `gprojci`: serves, migrates, makes tokens, and speaks to a running service.

Exit codes: 0 done; 1 a gate failed; 2 wrong usage or setting; 3 the service or its database does not answer.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import httpx
from sqlalchemy.exc import SQLAlchemyError

from gprojci_service import __version__
from gprojci_service.access import repository as tokens
from gprojci_service.access import service as access
from gprojci_service.client import call, speaks_to_the_service
from gprojci_service.context import Context
from gprojci_service.demo import demo
from gprojci_service.errors import ServiceError
from gprojci_service.inputs.commands import inputs
from gprojci_service.models.token import SCOPES
from gprojci_service.notifications.commands import notification
from gprojci_service.regressions.commands import regression
from gprojci_service.reports.commands import report
from gprojci_service.serve import Embedded
from gprojci_service.settings import load_settings

OPEN = ("awaiting_approval", "queued", "running", "deciding")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """GProj CI: accuracy and speed of attention kernels at every commit."""


def main() -> None:
    """Entry point: one line for each error, and the exit codes above."""
    try:
        cli()
    except ServiceError as error:
        click.echo(f"gprojci: {error.detail}", err=True)
        sys.exit(2)
    except SQLAlchemyError as error:
        click.echo(
            f"gprojci: GPROJCI_DATABASE_URL: the database does not answer: {str(error).splitlines()[0]}", err=True
        )
        sys.exit(3)
    except httpx.HTTPError as error:
        click.echo(f"gprojci: {type(error).__name__}: {error}; is the service running at --url?", err=True)
        sys.exit(3)


@cli.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("gprojci-data"),
    show_default=True,
    help="Where the database, secrets, caches and logs are kept.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--worker/--no-worker", default=True, show_default=True, help="Whether to measure on this machine.")
def serve(data_dir: Path, host: str, port: int, worker: bool) -> None:
    """Starts everything in one command: SQLite, a private Redis, pages and API, tasks, one measuring worker."""
    Embedded(data_dir, host, port, with_worker=worker).run()


@cli.command()
def migrate() -> None:
    """Brings the database of GPROJCI_DATABASE_URL to the newest schema."""
    Context.open(load_settings()).database.migrate()
    click.echo("the schema is up to date")


@cli.group()
def token() -> None:
    """Tokens of workers and API users, in the database of GPROJCI_DATABASE_URL."""


@token.command("create")
@click.argument("name")
@click.option(
    "--scope",
    required=True,
    type=click.Choice(SCOPES),
    help="worker: the worker API; write: whatever a user may change.",
)
@click.option("--expires-in-days", type=click.IntRange(1, 3650), help="Default: never.")
def token_create(name: str, scope: str, expires_in_days: int | None) -> None:
    """Makes a token and prints it, this once."""
    with Context.open(load_settings()).database.session(writes=True) as session:
        expires = timedelta(days=expires_in_days) if expires_in_days else None
        secret = access.create_token(session, name, scope, expires_in=expires)[1]
    click.echo(secret)


@token.command("list")
def token_list() -> None:
    """Lists the tokens, without their secrets."""
    with Context.open(load_settings()).database.session(writes=False) as session:
        for entry in tokens.all_tokens(session):
            state = (
                "revoked"
                if entry.revoked_at
                else f"expires {entry.expires_at:%Y-%m-%d}"
                if entry.expires_at
                else "active"
            )
            click.echo(f"{entry.id:5}  {entry.scope:7} {state:19} {entry.name}")


@token.command("revoke")
@click.argument("token_id", type=int)
def token_revoke(token_id: int) -> None:
    """Revokes a token at once."""
    with Context.open(load_settings()).database.session(writes=True) as session:
        access.revoke_token(session, token_id)
    click.echo(f"token {token_id} is revoked")


@cli.group()
@speaks_to_the_service
def job() -> None:
    """Jobs of a running service."""


@job.command("list")
@click.option("--project", help="Full name, owner/name.")
@click.option("--state", help="One of the job states.")
@click.pass_obj
def job_list(client: httpx.Client, project: str | None, state: str | None) -> None:
    """Lists jobs, newest first."""
    filters = {key: value for key, value in (("project", project), ("state", state)) if value}
    for entry in call(client, "GET", "/jobs", params=filters):
        click.echo(
            f"{entry['id']:6}  {entry['state']:17} {entry['hardware']:12} {entry['kind']:13} {entry['head_sha'][:10]}"
        )


@job.command("run")
@click.argument("project")
@click.argument("head_sha")
@click.option("--base", "base_sha", help="Commit to measure against; default: the head's first parent.")
@click.option("--wait/--no-wait", default=False, help="Wait for the verdict; a failed gate exits with 1.")
@click.pass_obj
def job_run(client: httpx.Client, project: str, head_sha: str, base_sha: str | None, wait: bool) -> None:
    """Asks for a measurement of a commit (full SHA) of a registered project."""
    made = call(client, "POST", "/jobs", json={"project": project, "head_sha": head_sha, "base_sha": base_sha})
    for entry in made:
        click.echo(f"job {entry['id']} on {entry['hardware']}")
    if wait:
        _exit_by([_wait(client, entry["id"]) for entry in made])


@job.command("wait")
@click.argument("job_id", type=int)
@click.pass_obj
def job_wait(client: httpx.Client, job_id: int) -> None:
    """Waits for a job's verdict; a failed gate exits with 1."""
    _exit_by([_wait(client, job_id)])


@job.command("rerun")
@click.argument("job_id", type=int)
@click.pass_obj
def job_rerun(client: httpx.Client, job_id: int) -> None:
    """Measures the same commits once more."""
    click.echo(f"job {call(client, 'POST', f'/jobs/{job_id}/rerun')['id']}")


@job.command("cancel")
@click.argument("job_id", type=int)
@click.option("--reason", default="cancelled by hand", show_default=True)
@click.pass_obj
def job_cancel(client: httpx.Client, job_id: int, reason: str) -> None:
    """Cancels an open job."""
    call(client, "POST", f"/jobs/{job_id}/cancel", json={"reason": reason})
    click.echo(f"job {job_id} is cancelled")


@job.command("approve")
@click.argument("job_id", type=int)
@click.argument("head_sha")
@click.pass_obj
def job_approve(client: httpx.Client, job_id: int, head_sha: str) -> None:
    """Lets a fork's commit (full SHA) be built."""
    call(client, "POST", f"/jobs/{job_id}/approve", json={"head_sha": head_sha})
    click.echo(f"job {job_id} is queued")


def _wait(client: httpx.Client, job_id: int) -> dict[str, Any]:
    while True:
        entry: dict[str, Any] = call(client, "GET", f"/jobs/{job_id}")
        if entry["state"] not in OPEN:
            verdict = entry["verdict"]
            click.echo(
                f"job {job_id}: {verdict['verdict']}: {verdict['summary']}"
                if verdict
                else f"job {job_id}: {entry['state']}: {entry['detail']}"
            )
            return entry
        time.sleep(2)


def _exit_by(entries: list[dict[str, Any]]) -> None:
    words = {entry["verdict"]["verdict"] if entry["verdict"] else "error" for entry in entries}
    sys.exit(1 if "fail" in words else 3 if "error" in words else 0)


for command in (demo, inputs, report, regression, notification):
    cli.add_command(command)
