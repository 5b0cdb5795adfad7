"""Decisions about training runs: which belong to one story, and which report of a run counts."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gprojci_service.errors import Conflict, InvalidRequest, PayloadTooLarge, TrainingNotFound
from gprojci_service.models import Training, TrainingRun, now
from gprojci_service.notifications import service as notifications
from gprojci_service.projects import service as projects
from gprojci_service.training import repository
from gprojci_suite.contract import ContractError, codec
from gprojci_suite.contract.training import MAX_RUNS, TrainingReport
from gprojci_suite.contract.training import TrainingRun as Run

SERIES = ("curve", "measured_steps", "layers")
COMPRESSION = 3
"""Of zlib: twice as fast as its default, and a tenth larger."""
MAX_COMMANDS = 20
"""Most commands that a story is told to have been made with, a line each."""
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class TrainingInvalid(InvalidRequest):
    """The body is not a training report; the message names the field."""


class TrainingDiffers(Conflict):
    """The report is of another setup, ruler or hardware than the runs of that name, so it does not belong to them."""


class TrainingUnreadable(Conflict):
    """Stored runs are of a format that this version does not read."""


@dataclass(frozen=True)
class Taken:
    """What became of a report."""

    training: Training
    runs: Sequence[TrainingRun]
    """All that are there now."""
    new: bool
    """Whether it is the first of its name."""
    older: tuple[str, ...]
    """Runs of which a newer report is there, so that this one changed nothing."""


def take(session: Session, name: str, text: str, *, sent_by: str, limit: int) -> Taken:
    """Adds the runs of a report to those of its name; a run that is there is replaced unless what is there is newer.

    The same report again changes nothing, so it may be sent until it is acknowledged. All runs of a name together have
    at most `limit` bytes, as one report has.

    Raises:
        TrainingInvalid: it breaks the contract, or is called otherwise.
        TrainingDiffers: it does not belong to the runs of that name.
        PayloadTooLarge: the runs of that name would be larger than the limit.
    """
    report, value = _read(name, text)
    training, new = _training(session, report, sent_by)
    _check_same(training, report)
    present = {(row.backend, row.seed): row for row in repository.runs(session, [training])}
    if len(present.keys() | {(run.backend, run.seed) for run in report.runs}) > MAX_RUNS:
        raise TrainingInvalid(f"{name} would have more than {MAX_RUNS} runs; give the rest another name")
    begun, older, changed = datetime.fromisoformat(report.created_at), [], new
    for run, as_sent in zip(report.runs, value["runs"], strict=True):
        row = present.get((run.backend, run.seed))
        if row is not None and (row.begun_at, row.steps) > (begun, run.steps):
            older.append(f"{run.backend} with seed {run.seed}")
            continue
        changed |= _keep(session, training, row, run, as_sent, begun)
    rows = repository.runs(session, [training])
    _check_weights(rows)
    if sum(row.size_bytes for row in rows) > limit:
        raise PayloadTooLarge(
            f"the runs of {name} would be larger than {limit} bytes together (GPROJCI_MAX_REPORT_BYTES): give the rest "
            "another name"
        )
    if changed:
        training.sent_at, training.sent_by = now(), sent_by
        training.begun_at = min(training.begun_at, begun)
        commands = dict.fromkeys([*training.repro.splitlines(), *report.repro.splitlines()])
        training.repro = "\n".join([*commands][-MAX_COMMANDS:])
    session.flush()
    return Taken(training, rows, new, tuple(older))


def _read(name: str, text: str) -> tuple[TrainingReport, dict[str, Any]]:
    """The report, and the JSON it was read from: spelling it anew would take longer than everything else here."""
    try:
        value = codec.loads(text)
        report = TrainingReport.from_json(value)
        json.dumps(value, ensure_ascii=False).encode()
    except (ContractError, UnicodeEncodeError) as error:
        raise TrainingInvalid(f"not a training report of gprojci-suite: {error}") from error
    if "\\u0000" in text and _NUL.search(text):
        raise TrainingInvalid("a text in it has the character NUL, which no database keeps")
    if report.name != name:
        raise TrainingInvalid(f"the report is called {report.name}; send it to /training/{report.name}")
    for run in report.runs:
        if not -(2**63) <= run.seed < 2**63 or run.steps >= 2**63:
            raise TrainingInvalid(f"{run.backend}: seed and steps must be integers of 64 bits")
    return report, value


def _training(session: Session, report: TrainingReport, sent_by: str) -> tuple[Training, bool]:
    """The row of that name, locked, and whether it is new."""
    known = repository.locked(session, report.name)
    if known is not None:
        return known, False
    made = Training(
        name=report.name,
        setup=codec.encode(report.setup),
        ruler=codec.encode(report.ruler),
        environment=codec.encode(report.environment),
        hardware=report.environment.hardware if report.environment else None,
        repro=report.repro,
        begun_at=datetime.fromisoformat(report.created_at),
        sent_by=sent_by,
    )
    try:
        with session.begin_nested():
            session.add(made)
        return made, True
    except IntegrityError:  # another process of the same story sent its first report meanwhile
        known = repository.locked(session, report.name)
        if known is None:
            raise
        return known, False


def _check_same(training: Training, report: TrainingReport) -> None:
    """Runs of one story differ in the backend alone; anything else would be laid at the backend's door."""
    setup: dict[str, Any] = codec.encode(report.setup)
    parts: dict[str, tuple[Any, Any]] = {
        **{f"setup.{key}": (training.setup.get(key), value) for key, value in setup.items()},
        "ruler": (training.ruler, codec.encode(report.ruler)),
        "hardware": (training.hardware, report.environment.hardware if report.environment else None),
    }
    for part, (before, after) in parts.items():
        if before != after:
            raise TrainingDiffers(
                f"{training.name} has runs of another {part} ({_short(before)} there, {_short(after)} in this report): "
                f"give it another name, or remove them first with `gprojci training remove {training.name}`"
            )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _keep(
    session: Session, training: Training, row: TrainingRun | None, run: Run, as_sent: dict[str, Any], begun: datetime
) -> bool:
    """Stores a run, and says whether anything of it is new."""
    content = json.dumps(as_sent, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    content_hash = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if row is not None and (row.content_hash, row.begun_at) == (content_hash, begun):
        return False
    if row is None:
        row = TrainingRun(training_id=training.id, backend=run.backend, seed=run.seed)
        session.add(row)
    facts = {field.name: getattr(run, field.name) for field in fields(run) if field.name not in SERIES}
    row.facts = codec.encode(facts | {"final_dq_error": run.final_dq_error})
    row.size_bytes = len(content)
    row.body, row.content_hash = zlib.compress(content, COMPRESSION), content_hash
    row.begun_at, row.steps, row.sent_at = begun, run.steps, now()
    session.flush()
    return True


def _check_weights(rows: Sequence[TrainingRun]) -> None:
    """Raises:
    TrainingDiffers: runs with equal seeds began with different weights.
    """
    first: dict[int, TrainingRun] = {}
    for row in rows:
        weights = row.facts["initial_weights"]
        if weights is not None and first.setdefault(row.seed, row).facts["initial_weights"] != weights:
            raise TrainingDiffers(
                f"{row.backend} with seed {row.seed} began with other weights than "
                f"{first[row.seed].backend} did: with them the difference is not the backend's alone"
            )


def get(session: Session, name: str) -> Training:
    """The training of that name.

    Raises:
        TrainingNotFound: there is none.
    """
    found = repository.by_name(session, name)
    if found is None:
        raise TrainingNotFound(f"no training {name}; `gprojci training list` shows them")
    return found


def report(session: Session, training: Training) -> TrainingReport:
    """All its runs as one report.

    Raises:
        TrainingUnreadable: an earlier version of the service stored them in a format that this one does not read.
    """
    rows = repository.runs(session, [training], whole=True)
    value = {
        "kind": "gprojci-training/1",
        "name": training.name,
        "created_at": training.begun_at.isoformat(),
        "repro": training.repro,
        "ruler": training.ruler,
        "environment": training.environment,
        "setup": training.setup,
        "runs": [json.loads(zlib.decompress(row.body)) for row in rows],
    }
    try:
        return TrainingReport.from_json(value)
    except ContractError as error:
        raise TrainingUnreadable(
            f"{training.name} has a format that this version does not read ({error}); it is kept: go back to the "
            "version that took it, or remove it and send it again"
        ) from error


def tell(session: Session, project: str, name: str, wrong: dict[str, list[str]]) -> list[str]:
    """Tells the channels of a project what is wrong with a training; returns the names of those that are told.

    Raises:
        ProjectNotFound: there is no such project.
    """
    told = projects.get(session, project)
    found = {backend: said for backend, said in wrong.items() if said}
    if not found:
        return []
    first, *others = found
    more = f" (also wrong: {', '.join(others)})" if others else ""
    return notifications.publish(
        session,
        told,
        "training.wrong",
        severity="warning",
        title=f"training {name}: {first}: {'; '.join(found[first])}{more}",
        path=f"/training/{name}",
        facts={"training": name, "wrong": found},
    )


def remove(session: Session, name: str) -> None:
    """Removes a training with all its runs; nothing else stands on it.

    Raises:
        TrainingNotFound: there is none.
    """
    repository.remove(session, get(session, name))
