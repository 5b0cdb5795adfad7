"""Commands `gprojci training …`: reports of training runs, sent to a running service while they grow."""

from __future__ import annotations

import gzip
import json
import signal
import sys
import time
import zlib
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import httpx

from gprojci_service.client import AWAY, OUTPUT, ServiceGroup, answer, call, end, note, page, show, table, write
from gprojci_service.inputs.commands import upload
from gprojci_service.pages.formatting import DASH, fraction, number, seconds
from gprojci_service.training.summary import ALARM, PARTED
from gprojci_suite.contract import input_file
from gprojci_suite.contract.tensor_file import MalformedFile
from gprojci_suite.contract.training import TrainingReport, is_training

SEND_TIMEOUT = httpx.Timeout(60.0, read=300.0)


@click.group(cls=ServiceGroup)
def training() -> None:
    """Training runs that differ in the attention backend alone, shown by a running service."""


@training.command("send")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Send again whatever changes, until Ctrl-C (SIGINT or SIGTERM).")
@click.option(
    "--every", default=15.0, show_default=True, type=click.FloatRange(0.1), help="Seconds between looks with --follow."
)
@click.option(
    "--captures",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also upload the input sets that the runs wrote into this directory, each under its file's name.",
)
@click.pass_obj
def training_send(
    client: httpx.Client, paths: tuple[Path, ...], follow: bool, every: float, captures: Path | None
) -> None:
    """Sends reports of `gprojci-suite train`: files (also FILE.gz), or all that lie in a directory."""
    sender = _Sender(client, patient=follow, captures=captures)
    if follow:
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            while True:
                sender.send(paths)
                time.sleep(every)
        except KeyboardInterrupt:
            note("the last look")
    sender.send(paths)
    if not sender.answers:
        raise click.UsageError(f"{', '.join(map(str, paths))}: no training report; `gprojci-suite train` writes one")
    show(list(sender.answers.values()), [page(client, f"/training/{name}") for name in sender.answers])


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class _Sender:
    """Sends each report once for each state of its file. Where `patient`, what cannot be read or sent now is tried
    again at the next look: somebody may be writing it, or the service may be starting anew."""

    def __init__(self, client: httpx.Client, *, patient: bool, captures: Path | None) -> None:
        self.client, self.patient, self.captures = client, patient, captures
        self.sent: dict[Path, tuple[int, int]] = {}
        self.noted: dict[Path, str] = {}
        self.answers: dict[str, Any] = {}
        self.looked_at: set[str] = set()
        """Content hashes of the input sets that are there, or never will be."""

    def send(self, paths: Sequence[Path]) -> None:
        """Whatever is new under the paths."""
        for file in _files(paths):
            try:
                found = file.stat()
                state = (found.st_mtime_ns, found.st_size)
                if self.sent.get(file) == state:
                    continue
                text = _text(file)
                value = json.loads(text)
                if is_training(value):
                    self._put(str(value.get("name")), text)
                    if self.captures is not None:
                        self._upload(TrainingReport.loads(text), self.captures)
                elif file in paths:
                    raise click.UsageError(f"{file}: not a training report; `gprojci report import` takes the others")
            except (OSError, EOFError, zlib.error, ValueError, httpx.TransportError) as error:
                if not self.patient:
                    raise _readable(file, error) from error
                if self.noted.get(file) != str(error):
                    note(f"{file}: {error}; it is tried again")
                self.noted[file] = str(error)
                continue
            self.sent[file] = state
            self.noted.pop(file, None)

    def _put(self, name: str, text: str) -> None:
        taken = self._answer(self.client.put(_path(name), content=text.encode(), timeout=SEND_TIMEOUT))
        if taken["older"]:
            note(f"{name}: a newer report is there of {', '.join(taken['older'])}")
        self.answers[name] = taken

    def _upload(self, report: TrainingReport, directory: Path) -> None:
        """The input sets of a report that lie in the directory, are what the report says, and are not there yet."""
        written = {
            capture.content_hash: directory / Path(capture.file).name for run in report.runs for capture in run.captures
        }
        new = {content: file for content, file in written.items() if content not in self.looked_at and file.is_file()}
        if not new:
            return
        names = {entry["name"]: entry["content_hash"] for entry in self._answer(self.client.get("/inputs"))}
        for content, file in new.items():
            if content in names.values() or not _is(file, content) or self._bring(file, content, names):
                self.looked_at.add(content)

    def _bring(self, file: Path, content: str, taken: Container[str]) -> bool:
        """Upload an input set under the file's name, if need be with its hash; whether the service has it now."""
        stem = file.name.removesuffix(".safetensors")
        # A name keeps its content for ever: a later run may have written another one under it.
        name = f"{stem}-{content.removeprefix('sha256:')[:8]}" if stem in taken else stem
        try:
            upload(self.client, file, content, name)
        except (click.ClickException, SystemExit) as error:  # the latter has told its reason
            if not self.patient:
                raise
            if isinstance(error, click.ClickException):
                error.show()
            # The next states of the report are worth more than the set, which comes with one of them.
            note(f"{file} is not uploaded yet: it is tried again with the next report")
            return False
        note(f"{file} is the input set {name} now")
        return True

    def _answer(self, response: httpx.Response) -> Any:
        """What a success holds; whatever else ends the command, but for a service that is away where one is patient."""
        if response.status_code in AWAY and self.patient:
            raise httpx.TransportError(f"HTTP {response.status_code}")
        if not response.is_success:
            end(response)
        return response.json()


def _is(file: Path, content: str) -> bool:
    """Whether a file is the input set of that hash; says so where it is not."""
    try:
        found = input_file.check(file)[1]
    except MalformedFile as error:
        note(f"{file} is not uploaded: {error}")
        return False
    if found != content:
        note(f"{file} is not uploaded: it is not the input set of the report any more")
    return found == content


def _path(name: str) -> str:
    return f"/training/{quote(name, safe='')}"


def _readable(file: Path, error: Exception) -> Exception:
    """A file's fault names the file; a service's fault is told as for all commands."""
    if isinstance(error, httpx.HTTPError):
        return error
    if isinstance(error, FileNotFoundError):
        return click.UsageError(f"{file}: there is no such file")
    return click.UsageError(f"{file}: not JSON, nor JSON packed with gzip: {error}")


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
        else:
            yield path


def _text(file: Path) -> str:
    data = file.read_bytes()
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode()


@training.command("list")
@click.pass_obj
def training_list(client: httpx.Client) -> None:
    """Lists trainings, newest first."""
    found = call(client, "GET", "/training")
    rows = (
        (
            each["name"],
            each["hardware"] or DASH,
            each["begun_at"][:10],
            f"{max((run['steps'] for run in each['runs']), default=0)} of {each['setup']['steps']}",
            ", ".join(dict.fromkeys(run["backend"] for run in each["runs"])),
        )
        for each in found
    )
    show(found, table(("name", "hardware", "begun", "steps", "backends"), rows))


@training.command("show")
@click.argument("name")
@click.pass_obj
def training_show(client: httpx.Client, name: str) -> None:
    """Shows what came of each backend: median over seeds, with the smallest and the largest."""
    found = call(client, "GET", f"{_path(name)}/summary")
    rows = [
        (
            each["backend"],
            str(len(each["seeds"])),
            ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in each["statuses"].items()),
            _spread(each["final_loss"], lambda value: f"{value:.4f}"),
            _spread(each["loss_difference"], lambda value: f"{value:+.4f}"),
            _spread(each["compared_at"], number),
            _spread(each["late_gradient_norm"], number),
            _spread(each["final_dq_error"], fraction),
            _spread(each["step_seconds"], seconds),
            _spread(each["fast_step_seconds"], seconds),
            _spread(each["alarm_step"], number),
            _spread(each["parted_step"], number),
        )
        for each in found["backends"]
    ]
    against = f"minus {found['reference']}" if found["reference"] else "no fp32"
    header = (
        "backend",
        "seeds",
        "ended",
        "final loss",
        against,
        "at step",
        "late gradient norm",
        "dQ error",
        "step",
        "in its fastest tenth",
        "watch warns at",
        "loss parts at",
    )
    show(found, [*table(header, rows), page(client, f"/training/{name}")])


def _spread(value: dict[str, Any] | None, words: Any) -> str:
    if value is None:
        return DASH
    middle, low, high = (words(float(value[key])) for key in ("middle", "low", "high"))
    return middle if low == high else f"{middle} ({low} … {high})"


@training.command("check")
@click.argument("name")
@click.option(
    "--backend", "backends", multiple=True, help="Backend to check; again for more [default: all but FP32's]."
)
@click.option(
    "--loss", default=PARTED, show_default=True, help="Most nats that a loss may end above FP32's with the same seed."
)
@click.option(
    "--dq-error", default=ALARM, show_default=True, help="Largest error of dQ in any head in the end, a fraction."
)
@click.option("--tell", metavar="OWNER/NAME", help="Tell the channels of this project where anything is wrong.")
@click.pass_obj
def training_check(
    client: httpx.Client, name: str, backends: tuple[str, ...], loss: float, dq_error: float, tell: str | None
) -> None:
    """Says what is wrong with a training, seed by seed the worst; exit code 1 if anything is."""
    asked: dict[str, Any] = {"backend": list(backends), "loss": loss, "dq_error": dq_error}
    if tell is None:
        found = call(client, "GET", f"{_path(name)}/check", params=asked)
    else:
        found = call(client, "POST", f"{_path(name)}/check", json={"project": tell, **asked})
    wrong = any(found["wrong"].values())
    lines = [f"{backend}: {'; '.join(said) or 'nothing is wrong'}" for backend, said in found["wrong"].items()]
    if wrong and tell is not None:
        nobody = f"nobody: no channel of {tell} takes training.wrong; `gprojci notification add` makes one"
        lines.append(f"told: {', '.join(found['told']) or nobody}")
    show(found, [*lines, page(client, f"/training/{name}")])
    sys.exit(1 if wrong else 0)


@training.command("export")
@click.argument("name")
@click.option("--format", "form", type=click.Choice(["json", "csv"]), default="json", show_default=True)
@OUTPUT
@click.pass_obj
def training_export(client: httpx.Client, name: str, form: str, output: Path | None) -> None:
    """Writes all runs as one report (json), or every series, one value a line (csv)."""
    path = _path(name) + ("/series.csv" if form == "csv" else "")
    write(client, path, output, timeout=SEND_TIMEOUT)


@training.command("remove")
@click.argument("name")
@click.pass_obj
def training_remove(client: httpx.Client, name: str) -> None:
    """Removes a training with all its runs."""
    answer(client, "DELETE", _path(name))
    show({"name": name, "removed": True}, [f"training {name} is removed"])
