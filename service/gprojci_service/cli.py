"""Command `gprojci`: serves, migrates, and speaks to a running service.

Exit codes: 0 done; 1 a gate failed, a bisection found its commit; 2 wrong usage or setting; 3 the service or its
database does not answer, or has no verdict; 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import httpx
from click.shell_completion import get_completion_class
from sqlalchemy.exc import SQLAlchemyError

from gprojci_service import __version__
from gprojci_service.access.commands import person, token
from gprojci_service.bisections.commands import bisect
from gprojci_service.context import Context
from gprojci_service.demo import demo
from gprojci_service.errors import ServiceError
from gprojci_service.gate.commands import gate
from gprojci_service.github.commands import github
from gprojci_service.inputs.commands import inputs
from gprojci_service.jobs.commands import backfill, job, logs, status, submit
from gprojci_service.notifications.commands import notification
from gprojci_service.operating.commands import backup, doctor, restore
from gprojci_service.projects.commands import project
from gprojci_service.regressions.commands import regression
from gprojci_service.reports.commands import report
from gprojci_service.results.commands import compare, export
from gprojci_service.schedules.commands import schedule
from gprojci_service.serve import Embedded
from gprojci_service.settings import load_settings
from gprojci_service.training.commands import training
from gprojci_service.workers.commands import worker

SECTIONS = {
    "Measure a commit": ("submit", "status", "logs", "gate"),
    "Compare and search": ("compare", "bisect", "backfill", "schedule", "export"),
    "Manage": (
        "project",
        "job",
        "regression",
        "notification",
        "token",
        "person",
        "inputs",
        "report",
        "training",
        "worker",
        "github",
    ),
    "Run the service": ("serve", "demo", "migrate", "doctor", "backup", "restore", "completion"),
}
EPILOG = """
\b
First steps:
  gprojci serve                             the whole service on this machine
  export GPROJCI_URL=http://127.0.0.1:8000  where it is; this is the default
  export GPROJCI_TOKEN=$(cat gprojci-data/token)
  gprojci project add OWNER/NAME            or let its webhook do it
  gprojci submit --wait                     in a checkout: measures HEAD
  gprojci gate                              may HEAD be merged?

\b
Every command about a running service takes --url, --token and --json. Errors
are one line on standard error. Exit codes: 0 done; 1 a gate failed, a
bisection found its commit; 2 wrong usage or setting; 3 the service does not
answer, or there is no verdict; 130 interrupted.
"""


class _Sections(click.Group):
    """Lists its commands by what they are for."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes one list for each section; a command of no section comes last."""
        listed = {name for names in SECTIONS.values() for name in names}
        rest = tuple(name for name in self.list_commands(context) if name not in listed)
        for title, names in {**SECTIONS, "More": rest}.items():
            rows = [(name, self.commands[name].get_short_help_str(limit=200)) for name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@click.group(cls=_Sections, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__)
def cli() -> None:
    """GProj CI: accuracy and speed of attention kernels at every commit."""


def main() -> None:
    """Entry point: one line for each error, and the exit codes above."""
    try:
        code = cli.main(prog_name="gprojci", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("gprojci: interrupted", err=True)
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else None
        hint = f"; see `{command} --help`" if command else ""
        click.echo(f"gprojci: {' '.join(error.format_message().split()).removesuffix('.')}{hint}", err=True)
        sys.exit(2)
    except ServiceError as error:
        click.echo(f"gprojci: {error.detail}", err=True)
        sys.exit(2)
    except SQLAlchemyError as error:
        click.echo(
            f"gprojci: GPROJCI_DATABASE_URL: the database does not answer: {str(error).splitlines()[0]}", err=True
        )
        sys.exit(3)
    except httpx.HTTPError as error:
        click.echo(
            f"gprojci: {type(error).__name__}: {error}; is the service running at --url (GPROJCI_URL)?", err=True
        )
        sys.exit(3)
    sys.exit(code if isinstance(code, int) else 0)


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


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints what makes SHELL complete commands and options.

    \b
    bash: echo 'eval "$(gprojci completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(gprojci completion zsh)"' >> ~/.zshrc
    fish: gprojci completion fish > ~/.config/fish/completions/gprojci.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, "gprojci", "_GPROJCI_COMPLETE").source())


for command in (
    demo,
    doctor,
    backup,
    restore,
    inputs,
    report,
    training,
    token,
    person,
    project,
    job,
    submit,
    status,
    logs,
    gate,
    compare,
    export,
    backfill,
    bisect,
    schedule,
    regression,
    notification,
    worker,
    github,
):
    cli.add_command(command)
