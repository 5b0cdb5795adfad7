"""Commands `gprojci report …`: reports of the ruler alone, brought to a running service to be shown."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import click
import httpx

from gprojci_service.client import ServiceGroup, answer, call, show, table


@click.group(cls=ServiceGroup)
def report() -> None:
    """Reports measured with the ruler alone, shown by a running service."""


@report.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--title", help="What the pages call it; default: the file's name.")
@click.pass_obj
def report_import(client: httpx.Client, file: Path, title: str | None) -> None:
    """Brings a report of `gprojci-suite bench --json FILE` (or FILE.gz) to the service; the same one is kept once."""
    body = file.read_bytes()
    if file.suffix == ".gz":
        try:
            body = gzip.decompress(body)
        except (OSError, EOFError, zlib.error) as error:
            raise click.UsageError(f"{file}: not a gzip file: {error}") from error
    name = title or file.name.removesuffix(".gz").removesuffix(".json")
    headers = {"Content-Type": "application/json"}
    taken = call(client, "POST", "/reports", params={"title": name}, content=body, headers=headers)
    show(taken, [f"report {taken['id']}: {taken['title']}"])


@report.command("list")
@click.pass_obj
def report_list(client: httpx.Client) -> None:
    """Lists imported reports, newest first."""
    found = call(client, "GET", "/reports")
    rows = ((entry["id"], entry["hardware"], entry["imported_at"][:10], entry["title"]) for entry in found)
    show(found, table(("id", "hardware", "imported", "title"), rows))


@report.command("remove")
@click.argument("report_id", type=int)
@click.pass_obj
def report_remove(client: httpx.Client, report_id: int) -> None:
    """Removes an imported report."""
    answer(client, "DELETE", f"/reports/{report_id}")
    show({"id": report_id, "removed": True}, [f"report {report_id} is removed"])
