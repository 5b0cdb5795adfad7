"""Brings the runs of a training onto common steps: a middle and a band over seeds for each backend."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from gprojci_dashboards.charts.training_curves import CurvesData, End, Line, Panel, Unit
from gprojci_service.training.losses import Losses
from gprojci_suite.contract.training import Curve, TrainingReport, TrainingRun, reference

POINTS = 120
"""Most points of a drawn line; more would be finer than its pixels."""
DETAILS: dict[str, tuple[str, tuple[tuple[str, Unit, str], ...]]] = {
    "layers": (
        "gradients and errors",
        (
            ("Gradient norm", "number", "gradient_norm"),
            ("Key drift (offset ÷ spread)", "ratio", "key_offset_worst"),
            ("dQ error, worst head", "fraction", "dq_error_worst"),
            ("dK error, worst head", "fraction", "dk_error_worst"),
        ),
    ),
    "projections": (
        "gradients of the weights of q, k and v",
        (
            ("Gradient norm of q", "number", "gradient_norm_q"),
            ("Gradient norm of k", "number", "gradient_norm_k"),
            ("Gradient norm of v", "number", "gradient_norm_v"),
        ),
    ),
    "signs": (
        "logits, leak and symmetry",
        (
            ("Largest logit", "number", "largest_logit"),
            ("Largest probability of a row, median", "fraction", "top_probability"),
            ("Row-sum leak into dQ", "fraction", "row_sum_leak"),
            ("dQ's response to shifted keys", "fraction", "symmetry_response"),
        ),
    ),
}
"""What can be looked at layer by layer: in words, and each panel with its column of the contract's `LayerSeries`."""
Values = dict[int, tuple[int, float]]
"""Bin → the last step in it that has a value, and the value."""


@dataclass(frozen=True)
class Grid:
    """Bins of steps: each run's points within a bin are joined, so that runs can be compared that were thinned
    differently. A bin is never finer than the coarsest run's points."""

    edges: tuple[int, ...]
    """Last step of each bin."""

    @classmethod
    def over(cls, columns: Iterable[tuple[int, ...]]) -> Grid:
        """The bins for series with these steps."""
        found = [steps for steps in columns if steps]
        if not found:
            return cls(())
        last = max(steps[-1] for steps in found)
        coarsest = max(steps[-1] / len(steps) for steps in found)
        count = min(POINTS, max(1, round(last / coarsest)))
        return cls(tuple(math.ceil(last * (place + 1) / count) for place in range(count)))

    def largest(self, steps: Sequence[int], values: Sequence[float]) -> Values:
        """The largest value of each bin; NaN only where there is nothing else."""
        found: Values = {}
        for step, value in zip(steps, values, strict=True):
            place = bisect_left(self.edges, step)
            if place in found and not found[place][1] < value and not math.isnan(found[place][1]):
                value = found[place][1]
            found[place] = (step, value)
        return found

    def means(self, curve: Curve, against: Curve | None = None) -> Values:
        """The mean loss of each bin, or its difference to that of another run.

        Both end where the first of them does, or with its first loss that is no finite number.
        """
        own, other = Losses(curve), Losses(against) if against else None
        last = min(own.last, other.last) if other else own.last
        found: Values = {}
        begin = 0
        for place, edge in enumerate(self.edges):
            end = min(edge, last)
            if end <= begin:
                break
            found[place] = (end, own.mean(begin, end) - (other.mean(begin, end) if other else 0.0))
            begin = edge
        return found


def story(report: TrainingReport) -> CurvesData:
    """The four panels of a training, a line for each backend; the loss itself where no FP32 run stands beside."""
    losses = Grid.over(run.curve.steps for run in report.runs)
    layers = Grid.over(run.measured_steps for run in report.runs)
    against = reference(run.backend for run in report.runs)
    matched = {run.seed: run.curve for run in report.runs if run.backend == against}
    if matched:
        compared = [run for run in report.runs if run.backend != against and run.seed in matched]
        differences = _by_backend((run, losses.means(run.curve, matched[run.seed])) for run in compared)
        loss = Panel(f"Loss minus that of {against}", "number", differences, logarithmic=False, zero=True)
    else:
        means = _by_backend((run, losses.means(run.curve)) for run in report.runs)
        loss = Panel("Loss", "number", means, logarithmic=False)
    norms = _by_backend((run, losses.largest(run.curve.steps, run.curve.gradient_norm)) for run in report.runs)
    return _drawn(
        loss,
        Panel("Gradient norm", "number", norms),
        *(
            Panel(title, unit, _by_backend((run, _worst_layer(run, layers, name)) for run in report.runs))
            for title, unit, name in DETAILS["layers"][1][1:3]
        ),
    )


def of_layers(report: TrainingReport, backend: str, detail: str) -> CurvesData:
    """The panels of one of DETAILS, a line for each layer of one backend."""
    runs = [run for run in report.runs if run.backend == backend]
    grid = Grid.over(run.measured_steps for run in runs)
    numbers = sorted({layer.layer for run in runs for layer in run.layers})
    return _drawn(
        *(
            Panel(
                title,
                unit,
                tuple(
                    _line(f"layer {number}", [(run, _of_layer(run, grid, number, name)) for run in runs])
                    for number in numbers
                ),
            )
            for title, unit, name in DETAILS[detail][1]
        ),
        parts=True,
    )


def _drawn(*panels: Panel, parts: bool = False) -> CurvesData:
    """Without lines that have no point, and panels that have no line."""
    kept = [
        Panel(each.title, each.unit, tuple(line for line in each.lines if line.steps), each.logarithmic, each.zero)
        for each in panels
    ]
    return CurvesData(tuple(panel for panel in kept if panel.lines), parts)


def _of_layer(run: TrainingRun, grid: Grid, number: int, name: str) -> Values:
    column = next((getattr(layer, name) for layer in run.layers if layer.layer == number), None)
    return grid.largest(run.measured_steps, column) if column is not None else {}


def _worst_layer(run: TrainingRun, grid: Grid, name: str) -> Values:
    """The largest over the layers that have it."""
    columns = [getattr(layer, name) for layer in run.layers if getattr(layer, name) is not None]
    if not columns:
        return {}
    worst = [max((value for value in row if value == value), default=math.nan) for row in zip(*columns, strict=True)]
    return grid.largest(run.measured_steps, worst)


def _by_backend(found: Iterable[tuple[TrainingRun, Values]]) -> tuple[Line, ...]:
    grouped: dict[str, list[tuple[TrainingRun, Values]]] = {}
    for run, values in found:
        grouped.setdefault(run.backend, []).append((run, values))
    return tuple(_line(backend, runs) for backend, runs in grouped.items())


def _line(name: str, runs: list[tuple[TrainingRun, Values]]) -> Line:
    """Median, smallest and largest over the seeds that have a value; crosses where a run broke down."""
    bins: dict[int, list[tuple[int, float]]] = {}
    ends = []
    for run, values in runs:
        finite = {place: found for place, found in values.items() if math.isfinite(found[1])}
        for place, found in finite.items():
            bins.setdefault(place, []).append(found)
        if run.status in ("diverged", "failed") and finite:
            step, value = finite[max(finite)]
            ends.append(End(step, value, f"seed {run.seed} {run.status} at step {run.steps:,}"))
    order = sorted(bins)
    seeds = [[value for _, value in bins[place]] for place in order]
    return Line(
        name,
        tuple(max(step for step, _ in bins[place]) for place in order),
        tuple(median(values) for values in seeds),
        tuple(min(values) for values in seeds),
        tuple(max(values) for values in seeds),
        tuple(ends),
    )
