"""Assembles the inputs page: what each set is like, where it comes from, and who fails on it."""

from __future__ import annotations

import json
import re
from importlib import resources
from statistics import median
from typing import Any

from sqlalchemy.orm import Session

from gprojci_dashboards.charts.training_story import Record, TrainingData
from gprojci_service.inputs.repository import all_files as uploaded_files
from gprojci_service.inputs.service import BundledSet, bundled
from gprojci_service.models import InputFile, InputSet
from gprojci_service.pages import drawings, repository, values_repository
from gprojci_service.pages.formatting import absolute, clean, fraction, memory, number, tensor
from gprojci_service.pages.schemas import Drawing, Failing, InputsView, InputView, Table
from gprojci_service.pages.values_repository import ValueRow
from gprojci_service.training.repository import all_runs as runs_of_trainings

ALARM = 0.01
"""Median error (a fraction) from which the page calls a backend failing on a set."""
_METRICS = {"dq_error": "dq", "dk_error": "dk", "dv_error": "dv", "o_error": "o"}


def inputs(session: Session) -> InputsView:
    """All input sets that reports used, that were uploaded or that are bundled: those with a story first, then the
    hardest."""
    newest: dict[str, InputSet] = {}
    for item in repository.input_sets(session):
        newest.setdefault(item.name, item)
    used = {item.content_hash: item for item in newest.values()}
    uploads = {row.content_hash: (row, project) for row, project in uploaded_files(session)}
    shown: list[tuple[InputSet | InputFile | BundledSet, tuple[InputFile, str | None] | None]] = []
    shown += [(item, uploads.get(item.content_hash)) for item in used.values()]
    shown += [(row, (row, project)) for key, (row, project) in uploads.items() if key not in used]
    shown += [
        (item, None)
        for item in bundled()
        if item.name not in newest and item.content_hash not in used.keys() | uploads.keys()
    ]
    metrics = [*_METRICS, *(f"{key}_worst" for key in _METRICS)]
    values: dict[str, list[ValueRow]] = {}
    for row in values_repository.newest_input_values(session, {item.name for item, _ in shown}, metrics):
        values.setdefault(row.series.case, []).append(row)
    captured = _captured(session)
    views = [
        _view(item, upload, values.get(item.name, []), tuple(captured.get(item.content_hash, ())))
        for item, upload in shown
    ]
    return InputsView(tuple(sorted(views, key=lambda view: (view.training is None, -view.hardness))))


def _captured(session: Session) -> dict[str, dict[tuple[str, str], None]]:
    """Content hash → the training runs that wrote it, in words, each with its address."""
    found: dict[str, dict[tuple[str, str], None]] = {}
    for name, run in runs_of_trainings(session):
        for capture in run.facts["captures"]:
            words = f"{name}: {run.backend}, seed {run.seed}, step {number(capture['step'])}"
            found.setdefault(capture["content_hash"], {})[words, f"/training/{name}"] = None
    return found


def _view(
    item: InputSet | InputFile | BundledSet,
    upload: tuple[InputFile, str | None] | None,
    values: list[ValueRow],
    captured_by: tuple[tuple[str, str], ...],
) -> InputView:
    entry = item.description
    statistics: list[dict[str, Any]] = entry["statistics"]
    layers: list[dict[str, Any]] = entry["layers"]
    errors: dict[str, dict[str, float]] = {}
    worst_slices: dict[tuple[str, str], float] = {}
    for row in values:
        backend, key = row.series.backend, row.series.metric
        if key in _METRICS:
            errors.setdefault(backend, {})[_METRICS[key]] = row.sample.value
        else:
            worst_slices[backend, _METRICS[key.removesuffix("_worst")]] = row.sample.value
    failing = []
    for backend, found in sorted(errors.items(), key=lambda pair: -max(pair[1].values())):
        name, worst = max(found.items(), key=lambda pair: pair[1])
        if worst > ALARM:
            most = worst_slices.get((backend, name), worst)
            more = f", worst slice {fraction(most)}" if most > worst else ""
            failing.append(Failing(backend, f"{tensor(name)} off by {fraction(worst)}{more}"))
    shape = layers[0] if layers else {}
    hardness = max((_number(row["offset_spread"]) for row in statistics), default=0.0)
    slices = sum(layer["batch"] * layer["heads"] for layer in layers)
    return InputView(
        key=f"input-{item.content_hash.removeprefix('sha256:')}",
        name=item.name,
        hardness=hardness,
        uploaded=upload is not None,
        bundled=item.content_hash in {found.content_hash for found in bundled()},
        tiles=(
            ("Keys' offset ÷ spread", number(hardness)),
            ("Largest logit", number(max((_number(row["largest_logit"]) for row in statistics), default=0.0))),
            (
                "Median top probability",
                f"{median([_number(row['median_top_probability']) for row in statistics] or [0.0]):.2f}",
            ),
            ("Slices", number(slices)),
        )
        if statistics
        else (("Statistics", "with the first report"), ("Slices", number(slices))),
        last_used=item.last_seen_at if isinstance(item, InputSet) else None,
        facts=(
            ("Layers", ", ".join(str(layer["layer"]) for layer in layers)),
            ("Shape", _shape(shape)),
            (
                "Mask, type",
                f"{'causal' if entry['causal'] else 'full'}, {entry['dtype']}, scale {number(entry['softmax_scale'])}",
            ),
            ("Content hash", item.content_hash),
            *_upload_facts(upload),
        ),
        provenance=Table(
            "Where the tensors come from",
            ("Fact", "Value"),
            tuple((str(key).replace("_", " "), clean(str(value))) for key, value in entry["provenance"].items()),
        )
        if entry["provenance"]
        else None,
        training=_training(item.name),
        captured_by=captured_by,
        judged=bool(errors),
        failing=tuple(failing),
        errors=_errors(errors) if errors else None,
        slices=Table(
            "Statistics of each slice",
            ("Slice", "Keys' offset ÷ spread", "Largest logit", "Median top probability"),
            tuple(
                (
                    str(row["slice"]),
                    number(_number(row["offset_spread"])),
                    number(_number(row["largest_logit"])),
                    f"{_number(row['median_top_probability']):.3f}",
                )
                for row in statistics
            ),
        )
        if statistics
        else None,
    )


def _upload_facts(upload: tuple[InputFile, str | None] | None) -> tuple[tuple[str, str], ...]:
    if upload is None:
        return ()
    row, project = upload
    facts = [("Uploaded", f"{absolute(row.uploaded_at)} with the token {row.uploaded_by}, {memory(row.size_bytes)}")]
    return (*facts, ("Captured for", project)) if project else tuple(facts)


def _number(value: float | str) -> float:
    """A number of a stored report; non-finite ones are spelled out there, in the spelling float() reads."""
    return float(value)


def _shape(layer: dict[str, Any]) -> str:
    if not layer:
        return ""
    heads = (
        str(layer["heads"]) if layer["heads"] == layer["kv_heads"] else f"{layer['heads']} (keys: {layer['kv_heads']})"
    )
    keys = "" if layer["seq_q"] == layer["seq_k"] else f", {number(layer['seq_k'])} keys"
    queries = f"{number(layer['seq_q'])} queries"
    return f"batch {layer['batch']}, heads {heads}, {queries}{keys}, head dimension {layer['head_dim']}"


def _errors(errors: dict[str, dict[str, float]]) -> Table:
    order = sorted(errors, key=lambda backend: errors[backend].get("dq", 0.0))
    return Table(
        "Median relative error of each backend in its newest session, most accurate dQ first",
        ("Backend", *(str(tensor(name)) for name in _METRICS.values())),
        tuple((backend, *(fraction(errors[backend].get(name)) for name in _METRICS.values())) for backend in order),
    )


def _training(name: str) -> Drawing | None:
    """The training run behind a bundled capture, where its log is bundled too."""
    if not re.fullmatch(r"[a-z0-9-]+", name):
        return None
    file = resources.files("gprojci_suite") / "captures" / f"{name}.training.json"
    if not file.is_file():
        return None
    records = []
    for entry in json.loads(file.read_text(encoding="utf-8")):
        rows = entry["rows"]  # layer, dQ median, dQ worst, offset median, offset worst, largest logit, top probability
        records.append(
            Record(
                step=entry["step"],
                loss=entry["loss"],
                dq_error_worst=max(row[2] for row in rows),
                dq_error_median=median(row[1] for row in rows),
                key_offset=max(row[4] for row in rows),
            )
        )
    caption = (
        "The run this set was captured from. The loss goes on as if nothing were wrong, while the gradient of the "
        "queries that FlashAttention-3 returns loses every correct digit in the worst head: the keys drift away from "
        "zero."
    )
    return drawings.training(TrainingData(tuple(records), "FlashAttention-3"), f"training-{name}", caption)
