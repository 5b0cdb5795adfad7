"""The series of a training's runs as CSV, one value a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import fields

from gprojci_suite.contract.codec import encode
from gprojci_suite.contract.training import TrainingReport, TrainingRun

FIELDS = ("backend", "seed", "step", "layer", "quantity", "value")
CURVE = ("loss", "gradient_norm", "step_seconds")


def lines(report: TrainingReport) -> Iterator[str]:
    """CSV, run by run; `layer` is empty for what is of the whole model. Errors are fractions, times seconds."""
    yield _csv([FIELDS])
    for run in report.runs:
        yield _csv([(run.backend, run.seed, *row) for row in _rows(run)])


def _rows(run: TrainingRun) -> Iterator[tuple[int, int | str, str, object]]:
    for name in CURVE:
        for step, value in zip(run.curve.steps, getattr(run.curve, name) or (), strict=False):
            yield step, "", name, encode(value)
    for layer in run.layers:
        for field in fields(layer):
            column = getattr(layer, field.name)
            if isinstance(column, tuple):
                for step, value in zip(run.measured_steps, column, strict=True):
                    yield step, layer.layer, field.name, encode(value)


def _csv(rows: Iterable[tuple[object, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
