"""Turns the charts of gprojci-dashboards into what a page embeds: escaped JSON and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from markupsafe import Markup

from gprojci_dashboards import charts
from gprojci_dashboards.charts import paired_ratios as charted
from gprojci_dashboards.charts.bisection import BisectionData
from gprojci_dashboards.charts.call_times import CallTimesData
from gprojci_dashboards.charts.error_distribution import DistributionData
from gprojci_dashboards.charts.error_surface import SurfaceData
from gprojci_dashboards.charts.head_differences import DifferenceData, change, times
from gprojci_dashboards.charts.history import HistoryData, Value, shown
from gprojci_dashboards.charts.pareto import ParetoData, frontier
from gprojci_dashboards.charts.roofline import RooflineData, roof
from gprojci_dashboards.charts.slices_heatmap import HeatmapData
from gprojci_dashboards.charts.training_curves import CurvesData, Line, Panel
from gprojci_dashboards.charts.training_curves import shown as curve_value
from gprojci_dashboards.charts.training_story import TrainingData
from gprojci_dashboards.readable import pass_name
from gprojci_service.pages.formatting import DASH, fraction, number, ratio, seconds, short_sha, tensor
from gprojci_service.pages.schemas import Drawing, Table
from gprojci_suite.contract.timing import Comparison

TABLE_STEPS = 20


def embedded(figure_json: str) -> Markup:
    """JSON that can stand inside a <script type="application/json">: no `<`, so no end tag and no comment in it."""
    return Markup(figure_json.replace("<", "\\u003c"))  # noqa: S704 (nothing in it can end the script)


def _drawing(chart: str, key: str, data: Any, caption: str, table: Table, *, wide: str = "") -> Drawing:
    module = charts.load(chart)
    return Drawing(key, module.TITLE, caption, embedded(module.figure(data).to_json()), table, data, wide)


def pareto(data: ParetoData, caption: str) -> Drawing:
    """Accuracy against speed."""
    best = {mark.backend for mark in frontier(data.marks)}
    marks = sorted(data.marks, key=lambda mark: mark.error)
    table = Table(
        f"{tensor(data.tensor)} error ({data.statistic} over slices) and time relative to {data.anchor}",
        ("Backend", "Role", f"{tensor(data.tensor)} error", "Over slices", "Time", "Interval", "On the frontier"),
        tuple(
            (
                f"{mark.backend} ({mark.note})" if mark.note else mark.backend,
                mark.role,
                fraction(mark.error),
                f"{fraction(mark.error_low)} … {fraction(mark.error_high)}",
                ratio(mark.time),
                f"{ratio(mark.time_low)} … {ratio(mark.time_high)}",
                "yes" if mark.backend in best else "no",
            )
            for mark in marks
        )
        + tuple(
            (f"{step.backend} at {short_sha(step.sha)}", "earlier", fraction(step.error), "", ratio(step.time), "", "")
            for step in reversed(data.path)
        ),
        (*(mark.url for mark in marks), *(step.url for step in reversed(data.path))),
    )
    return _drawing("pareto", "pareto", data, caption, table)


def history(data: HistoryData, caption: str) -> Drawing:
    """One metric over commits."""
    texts = [{value.position: _at_commit(value, data.unit) for value in line.values} for line in data.lines]
    links = {value.position: value.url for line in reversed(data.lines) for value in line.values}
    commits = data.commits[::-1]
    rows = [
        (
            f"{short_sha(commit.sha)} {commit.message[:60]}",
            *(column.get(commit.position, DASH) for column in texts),
            commit.author,
        )
        for commit in commits
    ]
    columns = ("Commit", *(line.backend for line in data.lines), "Author")
    urls = tuple(links.get(commit.position, "") for commit in commits)
    table = Table(f"{data.metric}, newest commit first", columns, tuple(rows), urls)
    return _drawing("history", "history", data, caption, table)


def _at_commit(value: Value, unit: str) -> str:
    text = shown(value.value, unit)
    return f"{text}, fails the gate" if value.verdict == "fail" else text


def distribution(data: DistributionData, caption: str) -> Drawing:
    """Cumulative distributions of errors."""
    by_slice: dict[str, dict[str, float]] = {}
    for side in data.sides:
        for name, error in zip(side.slices, side.errors, strict=True):
            by_slice.setdefault(name, {})[side.name] = error
    table = Table(
        f"{data.tensor} error of each slice",
        ("Slice", *(side.name for side in data.sides)),
        tuple(
            (name, *(fraction(errors.get(side.name)) for side in data.sides))
            for name, errors in sorted(by_slice.items())
        ),
    )
    return _drawing("error_distribution", "distribution", data, caption, table)


def heatmap(data: HeatmapData, caption: str, key: str = "heatmap", what: str = "error") -> Drawing:
    """Errors (or what else is a fraction) as a heat map."""
    long_names = any(len(column) > 14 for column in data.columns)
    table = Table(
        f"{data.tensor} {what}, {data.row_title} by {data.column_title}",
        (data.row_title.capitalize(), *data.columns),
        tuple(
            (row, *(fraction(error) for error in errors)) for row, errors in zip(data.rows, data.errors, strict=True)
        ),
    )
    return _drawing(
        "slices_heatmap",
        key,
        data,
        caption,
        table,
        wide="is-wider" if len(data.columns) > 10 else "is-wide" if len(data.columns) > 5 or long_names else "",
    )


def paired_ratios(
    compared: Iterable[tuple[str, Comparison]], caption: str, key: str = "ratios", margin: float | None = None
) -> Drawing:
    """Timing ratios of interleaved pairs by label; `margin` is the allowed increase, where speed is gated."""
    rows = (
        charted.Comparison(
            label,
            item.ratios,
            item.ratio,
            item.low,
            item.high,
            item.control,
            item.void_pairs,
            item.processes,
            item.backend == item.against_backend,
        )
        for label, item in compared
    )
    data = charted.PairedRatiosData(tuple(rows), margin)
    several = any(item.processes > 1 for item in data.comparisons)
    table = Table(
        "Median ratio of interleaved pairs, with its interval",
        ("Comparison", "Median", "Interval", "Pairs", *(["Processes"] if several else []), "Void pairs"),
        tuple(
            (
                item.label,
                ratio(item.ratio),
                f"{ratio(item.low)} … {ratio(item.high)}",
                number(len(item.ratios)),
                *([number(item.processes)] if several else []),
                number(item.void_pairs),
            )
            for item in data.comparisons
        ),
    )
    return _drawing("paired_ratios", key, data, caption, table)


def surface(data: SurfaceData, caption: str) -> Drawing:
    """Error over offset and spread of the logits, one heat map per backend."""
    points = [(offset, std) for offset in data.offsets for std in data.logit_stds]
    by_backend = [[error for errors in facet.errors for error in errors] for facet in data.facets]
    table = Table(
        f"{data.tensor} error at each offset of the keys and standard deviation of the logits",
        ("Offset ÷ spread, logit std", *(facet.backend for facet in data.facets)),
        tuple(
            (f"{offset:g}, {std:g}", *(fraction(errors[place]) for errors in by_backend))
            for place, (offset, std) in enumerate(points)
        ),
    )
    return _drawing("error_surface", "surface-map", data, caption, table, wide="is-wide")


def differences(data: DifferenceData, caption: str) -> Drawing:
    """Change of the error by layer and head."""
    rows = [
        (
            ratio_of,
            (f"{layer} {head}", fraction(before), fraction(after), DASH if ratio_of is None else times(ratio_of)),
        )
        for layer, bases, heads in zip(data.layers, data.base, data.head, strict=True)
        for head, before, after in zip(data.heads, bases, heads, strict=True)
        for ratio_of in [change(before, after)]
    ]
    rows.sort(key=lambda row: -(row[0] or 0.0))
    table = Table(
        f"{data.tensor} error of each layer and head, what became worse most first",
        ("Layer and head", "Base", "Head", "Head ÷ base"),
        tuple(cells for _, cells in rows),
    )
    return _drawing(
        "head_differences", "differences", data, caption, table, wide="is-wide" if len(data.heads) > 6 else ""
    )


def call_times(data: CallTimesData, caption: str) -> Drawing:
    """Times of single calls."""
    spans = [(side.name, sorted(side.seconds)) for side in data.sides]
    table = Table(
        "Times of single calls",
        ("Side", "Calls", "Fastest", "Median", "Slowest"),
        tuple(
            (name, number(len(found)), seconds(found[0]), seconds(median(found)), seconds(found[-1]))
            for name, found in spans
            if found
        ),
    )
    return _drawing("call_times", "call-times", data, caption, table)


def roofline(data: RooflineData, caption: str) -> Drawing:
    """Achieved FLOP/s under the device's roof."""
    table = Table(
        "Achieved TFLOP/s and the roof at the same intensity",
        ("Backend", "Pass", "FLOP a byte", "TFLOP/s", "Roof", "Share"),
        tuple(
            (
                point.label,
                pass_name(point.pass_),
                number(point.intensity),
                number(point.tflops),
                number(roof(data, point.intensity)),
                f"{point.tflops / roof(data, point.intensity):.0%}",
            )
            for point in data.points
        ),
    )
    return _drawing("roofline", "roofline-chart", data, caption, table)


def bisection(data: BisectionData, caption: str) -> Drawing:
    """What a search for the first bad commit measured."""
    table = Table(
        "Measurements in their order",
        ("Commit", "Place", "Verdict", "Over the good commit's", "Interval"),
        tuple(
            (
                short_sha(entry.sha),
                f"{entry.position} of {data.commits - 1}",
                entry.word,
                ratio(entry.ratio),
                DASH if entry.low is None else f"{ratio(entry.low)} … {ratio(entry.high)}",
            )
            for entry in data.measured
        ),
        tuple(entry.url for entry in data.measured),
    )
    return _drawing("bisection", "bisection", data, caption, table)


def training(data: TrainingData, key: str, caption: str) -> Drawing:
    """Loss and gradient error over a training run."""
    table = Table(
        "The run's log",
        ("Step", "Loss", "dQ error, worst head", "dQ error, median layer", "Keys' offset ÷ spread"),
        tuple(
            (
                number(record.step),
                f"{record.loss:.3f}",
                fraction(record.dq_error_worst),
                fraction(record.dq_error_median),
                number(record.key_offset),
            )
            for record in data.records
        ),
    )
    return _drawing("training_story", key, data, caption, table)


def training_curves(data: CurvesData, key: str, caption: str) -> Drawing:
    """Panels over the steps of a training; the table has some twenty of the steps, with all panels side by side."""
    names = dict.fromkeys(line.name for panel in data.panels for line in panel.lines)
    steps = min(
        (max((line.steps for line in panel.lines), key=len, default=()) for panel in data.panels), key=len, default=()
    )
    chosen = steps[:: -max(1, len(steps) // TABLE_STEPS)][::-1]
    rows = []
    for begin, end in zip((0, *chosen), chosen, strict=False):
        for name in names:
            cells = [_within(panel, name, begin, end) for panel in data.panels]
            if any(cell != DASH for cell in cells):
                rows.append((f"{number(end)}, {name}", *cells))
    table = Table(
        "Median over seeds (smallest … largest) at the last point up to each step",
        ("Step", *(panel.title for panel in data.panels)),
        tuple(rows),
    )
    return _drawing("training_curves", key, data, caption, table)


def _within(panel: Panel, name: str, begin: int, end: int) -> str:
    """The last value of a line after one step and up to another."""
    line: Line | None = next((line for line in panel.lines if line.name == name), None)
    places = [place for place, step in enumerate(line.steps) if begin < step <= end] if line else []
    if line is None or not places:
        return DASH
    middle, low, high = (curve_value(values[places[-1]], panel.unit) for values in (line.middle, line.low, line.high))
    return middle if low == high else f"{middle} ({low} … {high})"
