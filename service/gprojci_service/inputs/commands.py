"""Commands `gprojci inputs …`: input sets brought to a running service, so that manifests can name them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import httpx

from gprojci_service.client import ServiceGroup, answer, call, note, show, table
from gprojci_service.progress import progress
from gprojci_suite.contract import input_file
from gprojci_suite.contract.tensor_file import MalformedFile

DESCRIBE_SECONDS = 600.0
UPLOAD_TIMEOUT = httpx.Timeout(60.0, read=600.0)
_CHUNK = 2**20


@click.group(cls=ServiceGroup)
def inputs() -> None:
    """Input sets of a running service."""


@inputs.command("upload")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", required=True, help="What manifests ask for it by; it keeps its content for ever.")
@click.option("--project", help="Full name, owner/name, of the project it was captured for; every project may use it.")
@click.pass_obj
def inputs_upload(client: httpx.Client, file: Path, name: str, project: str | None) -> None:
    """Uploads a safetensors FILE of an input set, as `gprojci_suite.capture` writes it."""
    try:
        _, content_hash = input_file.check(file)
    except MalformedFile as error:
        raise click.UsageError(f"{file}: {error}") from error
    stored, new = upload(client, file, content_hash, name, project)
    if new:
        words = f"{stored['name']}: {stored['content_hash']}, {file.stat().st_size} bytes"
    else:
        words = f"this content is there already, as {stored['name']}: name it so in the manifest"
    show(stored, [words])


def upload(
    client: httpx.Client, file: Path, content_hash: str, name: str, project: str | None = None
) -> tuple[dict[str, Any], bool]:
    """Bring an input set that was checked to the service, with its statistics.

    Returns what the service keeps, and whether it is new.
    """
    parameters = {"name": name, **({"project": project} if project else {})}
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)}
    kept = answer(
        client, "POST", "/inputs", params=parameters, content=_chunks(file), headers=headers, timeout=UPLOAD_TIMEOUT
    )
    stored: dict[str, Any] = kept.json()
    if not stored["description"]["statistics"]:
        _send_statistics(client, stored["name"], file, content_hash)
    return stored, kept.status_code != 200


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source, progress(f"uploading {file.name}", file.stat().st_size) as bar:
        while chunk := source.read(_CHUNK):
            yield chunk
            bar.reach(source.tell())


def _send_statistics(client: httpx.Client, name: str, file: Path, content_hash: str) -> None:
    """Has the ruler describe the file where it can run here; otherwise the first report that uses it does."""
    if importlib.util.find_spec("torch") is None:
        note("no torch here to compute its statistics with: the first report that uses it brings them")
        return
    command = [sys.executable, "-P", "-m", "gprojci_suite", "describe", str(file.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DESCRIBE_SECONDS)
    if done.returncode != 0:
        raise click.ClickException(f"the ruler cannot describe it: {done.stderr.strip()[-500:]}")
    body = {"content_hash": content_hash, "statistics": json.loads(done.stdout)["statistics"]}
    call(client, "PUT", f"/inputs/{quote(name, safe='')}/statistics", json=body)


@inputs.command("list")
@click.pass_obj
def inputs_list(client: httpx.Client) -> None:
    """Lists uploaded input sets, and those that reports used."""
    found = call(client, "GET", "/inputs")
    rows = ((entry["name"], f"{entry['content_hash'][:19]}…", _size(entry)) for entry in found)
    show(found, table(("name", "content", "size"), rows))


def _size(entry: dict[str, Any]) -> str:
    return f"{entry['uploaded']['size_bytes']} bytes" if entry["uploaded"] else "used by a report"


@inputs.command("remove")
@click.argument("name")
@click.pass_obj
def inputs_remove(client: httpx.Client, name: str) -> None:
    """Removes an uploaded set that no report used."""
    answer(client, "DELETE", f"/inputs/{quote(name, safe='')}")
    show({"name": name, "removed": True}, [f"{name} is removed"])
