"""Assembles the pages of training runs: what came of each backend, and its curves."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from gprojci_service.inputs import service as inputs
from gprojci_service.models import Training, TrainingRun
from gprojci_service.pages import drawings, report_parts, training_curves
from gprojci_service.pages.formatting import DASH, absolute, duration, fraction, memory, number, seconds, short_sha
from gprojci_service.pages.scatter import pick
from gprojci_service.pages.schemas import Cell, Choice, Drawing, Table
from gprojci_service.pages.training_views import CaptureView, TrainingListView, TrainingRow, TrainingView
from gprojci_service.training import repository, service
from gprojci_service.training.summary import (
    ALARM,
    PARTED,
    BackendSummary,
    Spread,
    furthest,
    largest,
    statuses,
    summaries,
)
from gprojci_suite.contract import codec
from gprojci_suite.contract.report import Environment, Ruler
from gprojci_suite.contract.training import FINISHED, TrainingReport, TrainingSetup, reference
from gprojci_suite.contract.training import TrainingRun as TrainingRunReport

SHOWN = 200
NOTHING = "nothing"


def trainings(session: Session) -> TrainingListView:
    """The newest of them."""
    found = repository.newest(session, SHOWN)
    runs = repository.runs(session, found)
    return TrainingListView(tuple(_row(each, [run for run in runs if run.training_id == each.id]) for each in found))


def _row(training: Training, runs: list[TrainingRun]) -> TrainingRow:
    setup = codec.decode(TrainingSetup, training.setup)
    return TrainingRow(
        training,
        f"{number(setup.model.layers)} layers of width {number(setup.model.width)}, {_data(setup)}",
        ", ".join(dict.fromkeys(run.backend for run in runs)),
        number(len({run.seed for run in runs})),
        f"{number(max((run.steps for run in runs), default=0))} of {number(setup.steps)}",
        _statuses(statuses(run.facts["status"] for run in runs)),
        *_worst([run for run in runs if run.facts["status"] in FINISHED]),
    )


def _worst(ended: list[TrainingRun]) -> tuple[Cell, Cell]:
    """How far a loss ends above that of FP32 at most, and the largest error of dQ in the end, with their backends."""
    losses = {(run.backend, run.seed): codec.decode(float, run.facts["final_loss"]) for run in ended}
    errors = [(run.backend, run.facts["final_dq_error"]) for run in ended]
    loss = furthest(losses)
    error = largest((backend, codec.decode(float, value)) for backend, value in errors if value is not None)
    return (
        Cell(DASH) if loss is None else Cell(_signed(loss[1]), not loss[1] <= PARTED, sub=loss[0]),
        Cell(DASH) if error is None else Cell(fraction(error[1]), not error[1] <= ALARM, sub=error[0]),
    )


def training(session: Session, name: str, choices: Mapping[str, str]) -> TrainingView:
    """One of them; `choices` (what is looked at layer by layer, of which backend) come from the address.

    Raises:
        TrainingNotFound: there is none of that name.
        TrainingUnreadable: this version does not read its format.
    """
    row = service.get(session, name)
    report = service.report(session, row)
    found = summaries(report)
    columns, rows = _outcomes(found)
    curves = training_curves.story(report)
    offered, detail = _detail(report, choices)
    return TrainingView(
        training=row,
        words=_data(report.setup),
        columns=columns,
        rows=rows,
        notes=_notes(report, found),
        story=drawings.training_curves(curves, "story", _caption(report)) if curves.panels else None,
        runs=_runs(report),
        choices=offered,
        detail=detail,
        captures=_captures(session, report),
        facts=_facts(report),
    )


def _caption(report: TrainingReport) -> str:
    seeds = len({run.seed for run in report.runs})
    band = "Line: median over seeds; band: from the smallest to the largest. " if seeds > 1 else ""
    against = reference(run.backend for run in report.runs)
    loss = (
        f"Loss: the mean training loss minus that of {against} with the same seed and data, in nats per token. "
        if against
        else "No FP32 run stands beside these, so the loss itself is drawn, in nats per token. "
    )
    return (
        f"{loss}{band}Gradient norm: the largest among a point's steps. Key drift: the norm of the mean key over the "
        "keys' distance from it, largest head. dQ error: against float64 from the same inputs. "
        "Dragging zooms all panels."
    )


def _detail(report: TrainingReport, choices: Mapping[str, str]) -> tuple[tuple[Choice, ...], Drawing | None]:
    """What can be looked at layer by layer, and the picture of what is."""
    backends = tuple(dict.fromkeys(run.backend for run in report.runs if run.layers))
    if not backends:
        return (), None
    words = {NOTHING: NOTHING, **{key: named for key, (named, _) in training_curves.DETAILS.items()}}
    chosen, backend = pick(choices.get("detail"), list(words)), pick(choices.get("backend"), list(backends))
    offered = (
        Choice("detail", "Show", tuple(words), chosen, words),
        Choice("backend", "Backend", backends, backend, {}),
    )
    if chosen == NOTHING:
        return offered, None
    data = training_curves.of_layers(report, backend, chosen)
    several = len({run.seed for run in report.runs if run.backend == backend}) > 1
    caption = f"{backend}, a line for each layer{': the median over seeds' if several else ''}."
    return offered, drawings.training_curves(data, "detail-curves", caption) if data.panels else None


def _outcomes(found: tuple[BackendSummary, ...]) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """The columns in which some backend has a value, and what stands in them."""
    titles, rows = _columns(found), [_cells(entry) for entry in found]
    kept = [place for place in range(len(titles)) if not rows or any(row[place].text != DASH for row in rows)]
    return tuple(titles[place] for place in kept), tuple(tuple(row[place] for place in kept) for row in rows)


def _columns(found: tuple[BackendSummary, ...]) -> tuple[str, ...]:
    against = reference(entry.backend for entry in found)
    return (
        "Backend",
        "Runs",
        "Final loss",
        f"Minus {against}" if against else "Minus FP32",
        "Late gradient norm",
        "dQ error at the end",
        "Step time",
        "Fastest tenth",
        "Watch would warn",
        "Loss parts",
    )


def _cells(entry: BackendSummary) -> tuple[Cell, ...]:
    return (
        Cell(entry.backend),
        Cell(_statuses(entry.statuses), sub=f"seed{'s' if len(entry.seeds) > 1 else ''} {_seeds(entry.seeds)}"),
        _cell(entry.final_loss, _loss),
        _difference(entry),
        _cell(entry.late_gradient_norm, number),
        _cell(entry.final_dq_error, fraction, most=ALARM),
        _cell(entry.step_seconds, seconds),
        _cell(entry.fast_step_seconds, seconds),
        _at_step(entry.alarm_step, entry.alarm_runs, entry),
        _at_step(entry.parted_step, entry.parted_runs, entry),
    )


def _at_step(found: Spread | None, runs: int, entry: BackendSummary) -> Cell:
    """When something happened, and in how many of the runs where that was not all of them."""
    cell, total = _cell(found, number), len(entry.seeds)
    if found is not None:
        cell = cell._replace(text=f"step {cell.text}")
    return cell._replace(sub=_joined([cell.sub, f"{runs} of {total} runs"])) if 0 < runs < total else cell


def _loss(value: float) -> str:
    """Nats with four digits behind the point, which is where backends begin to differ."""
    if not math.isfinite(value):
        return number(value)
    return f"{round(value, 4) + 0.0:.4f}".replace("-", "−")  # adding zero takes the sign of what rounds to zero


def _signed(value: float) -> str:
    """A difference of losses with its sign."""
    return f"{'+' if round(value, 4) > 0 else ''}{_loss(value)}"


def _difference(entry: BackendSummary) -> Cell:
    """With the step up to which losses were compared, where that is not the end of the runs."""
    cell = _cell(entry.loss_difference, _signed, most=PARTED)
    if entry.compared_at is None or entry.compared_at == entry.steps:
        return cell
    low, high = number(entry.compared_at.low), number(entry.compared_at.high)
    at = f"at step {low}" if low == high else f"at steps {low} … {high}"
    return cell._replace(sub=_joined([cell.sub, at]))


def _cell(value: Spread | None, words: Callable[[float], str], *, most: float = math.inf) -> Cell:
    """A value with its spread, marked where its median is above `most` or no number."""
    if value is None:
        return Cell(DASH)
    over = not value.middle <= most
    low, high = words(value.low), words(value.high)
    _, space, unit = high.rpartition(" ")
    between = f"{low.removesuffix(space + unit) if space else low} … {high}"
    return Cell(words(value.middle), over, sub="" if low == high else between)


def _seeds(seeds: tuple[int, ...]) -> str:
    return ", ".join(map(str, seeds))


def _statuses(statuses: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in statuses)


def _notes(report: TrainingReport, found: tuple[BackendSummary, ...]) -> tuple[str, ...]:
    """What must be known to read the table."""
    notes = []
    against = reference(entry.backend for entry in found)
    if any(len(entry.seeds) > 1 for entry in found):
        notes.append("Median over seeds, with the smallest and the largest below it.")
    if any(run.late_gradient_norm is not None for run in report.runs):
        notes.append("Late gradient norm: the largest in the second half of a run.")
    if any(entry.step_seconds for entry in found):
        notes.append(
            "Step time: a run's median. Fastest tenth: what a tenth of its steps stay below, where little but the "
            "device holds a step up."
        )
    if any(entry.parted_runs for entry in found):
        notes.append(
            f"Loss parts: the step from which on it lies {PARTED:g} nats above that of {against} with the same seed."
        )
    if any(run.side_by_side > 1 for run in report.runs):
        notes.append("Runs that shared the device with others have no step time: it would be the neighbours' too.")
    if against is None:
        notes.append("Without an FP32 run of the same seed a loss says nothing about the kernel.")
    for backend, count in Counter(backend for backend, _ in _revisions(report)).items():
        if count > 1:
            notes.append(f"The runs of {backend} were not all computed by the same code.")
    for run in report.runs:
        if run.status not in ("completed", "ended_early"):
            notes.append(f"{run.backend}, seed {run.seed}: {run.status.replace('_', ' ')}: {run.detail}")
    return tuple(notes)


def _runs(report: TrainingReport) -> Table:
    return Table(
        "Every run",
        (
            "Backend, seed",
            "Status",
            "Steps",
            "Took",
            "Final loss",
            "Largest gradient norm",
            "In the second half",
            "dQ error",
            "Step time",
        ),
        tuple(
            (
                f"{run.backend}, {run.seed}",
                run.status.replace("_", " ") + (f": {run.detail}" if run.detail else ""),
                number(run.steps),
                duration(run.seconds),
                DASH if run.final_loss is None else _loss(run.final_loss),
                _largest(run),
                number(run.late_gradient_norm),
                fraction(run.final_dq_error),
                seconds(run.step_seconds) if run.side_by_side == 1 else f"{number(run.side_by_side)} shared the device",
            )
            for run in report.runs
        ),
    )


def _largest(run: TrainingRunReport) -> str:
    """'20.1 by step 14': the norm and the last step of the curve's point that it belongs to."""
    points = zip(run.curve.gradient_norm, run.curve.steps, strict=True)
    found = max(((norm, step) for norm, step in points if math.isfinite(norm)), default=None)
    return number(run.largest_gradient_norm) + (f" by step {number(found[1])}" if found else "")


def _captures(session: Session, report: TrainingReport) -> tuple[CaptureView, ...]:
    """The input sets that the runs wrote: layers of one content and step together."""
    known = {item.content_hash: item.name for item in inputs.bundled()}
    known |= {item.content_hash: item.name for item in inputs.listed(session)}
    grouped: dict[tuple[str, int, str, int, str], list[tuple[int, float]]] = {}
    for run in report.runs:
        for capture in run.captures:
            key = (run.backend, run.seed, capture.content_hash, capture.step, capture.file)
            grouped.setdefault(key, []).append((capture.layer, capture.dq_error))
    found = []
    for (backend, seed, content_hash, step, file), layers in grouped.items():
        name = known.get(content_hash)
        of = f"layer{'s' if len(layers) > 1 else ''} {', '.join(str(layer) for layer, _ in sorted(layers))}"
        worst = fraction(max(error for _, error in layers))
        url = f"/inputs#input-{content_hash.removeprefix('sha256:')}" if name else ""
        found.append(
            CaptureView(name or file, url, f"{backend}, seed {seed}, step {number(step)}, {of}: dQ off by {worst}")
        )
    return tuple(found)


def _data(setup: TrainingSetup) -> str:
    return f"{number(setup.data.batch)} × {number(setup.model.sequence)} tokens a step"


def _facts(report: TrainingReport) -> tuple[tuple[str, str], ...]:
    setup, model, optimizer = report.setup, report.setup.model, report.setup.optimizer
    switches = [
        f"{model.positions} positions",
        f"biases on {', '.join(model.biases)}" if model.biases else "no biases on q, k, v",
        f"those of k begin with standard deviation {number(model.key_bias_std)}" if model.key_bias_std else "",
        "QK-norm" if model.qk_norm else "no QK-norm",
        f"QK-clip at {number(model.qk_clip)}" if model.qk_clip is not None else "",
        f"softmax temperature {number(model.softmax_temperature)}" if model.softmax_temperature != 1 else "",
        "compiled" if model.compiled else "",
    ]
    rates = [
        f"Muon {optimizer.muon_rate:g}, momentum {optimizer.momentum:g}" if optimizer.muon_rate is not None else "",
        f"AdamW {optimizer.adamw_rate:g}",
        f"{optimizer.bias_rate:g} for the biases" if optimizer.bias_rate is not None else "",
        f"weight decay {optimizer.weight_decay:g}" if optimizer.weight_decay else "no weight decay",
        f"warm-up over {number(optimizer.warm_up)} steps" if optimizer.warm_up else "",
    ]
    captured, size = setup.capture_threshold, setup.data.size_bytes
    rows = [
        (
            "Model",
            f"{number(model.layers)} layers of width {number(model.width)}, {number(model.heads)} heads of "
            f"{number(model.width // model.heads)}"
            + (f", {number(model.parameters)} parameters" if model.parameters is not None else ""),
        ),
        ("Switches", _joined(switches)),
        (
            "Data",
            _joined([setup.data.name, _data(setup), memory(size) if size is not None else ""]),
        ),
        ("Content of the data", setup.data.content_hash or ""),
        ("Optimizers", _joined(rates)),
        ("Length", f"{number(setup.steps)} steps, measured every {number(setup.measure_every)}"),
        ("Input sets", f"written from a dQ error of {fraction(captured)} on" if captured is not None else ""),
        ("Began", absolute(datetime.fromisoformat(report.created_at))),
        ("Code", _joined([f"{backend} {_short(revision)}" for backend, revision in _revisions(report)])),
        *_machine(report.ruler, report.environment),
    ]
    return tuple((name, value) for name, value in rows if value)


def _revisions(report: TrainingReport) -> list[tuple[str, str]]:
    """Each backend with each revision of its code, where runs tell it."""
    return sorted({(run.backend, run.revision) for run in report.runs if run.revision})


def _short(revision: str) -> str:
    """'1a2b3c4d', or 'package-1a2b3c4d', for each that it names."""
    return re.sub(r"[0-9a-f]{40}", lambda found: short_sha(found[0]), revision)


def _joined(parts: list[str]) -> str:
    return ", ".join(part for part in parts if part)


def _machine(ruler: Ruler | None, environment: Environment | None) -> list[tuple[str, str]]:
    rows = [("Ruler", f"gprojci-suite {ruler.version} at {ruler.revision}" if ruler else "other software")]
    if environment is not None:
        rows += [
            ("Device", environment.device_name),
            *report_parts.software(environment),
            ("Packages", report_parts.packages(environment)),
        ]
    return rows
