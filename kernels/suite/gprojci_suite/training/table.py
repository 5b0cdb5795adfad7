"""A training report as text: one line per backend, the seeds' median, lowest and highest values."""

import statistics
from collections.abc import Iterable

from gprojci_suite.contract.training import TrainingReport, TrainingRun

HEADER = ("backend", "seeds", "steps", "final loss", "largest gradient norm", "dq error at the end", "step")


def render(report: TrainingReport) -> str:
    """The table, and below it what befell the runs that were not completed."""
    backends = dict.fromkeys(run.backend for run in report.runs)
    rows = [HEADER, *(_row([run for run in report.runs if run.backend == name]) for name in backends)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for run in report.runs:
        if run.detail is not None:
            first = run.detail.splitlines()[0]
            lines.append(f"{run.backend} seed {run.seed}: {run.status} at step {run.steps}: {first}")
        lines += [f"{run.backend} seed {run.seed} wrote {item.file}" for item in run.captures]
    return "\n".join(lines)


def _row(runs: list[TrainingRun]) -> tuple[str, ...]:
    return (
        runs[0].backend,
        str(len(runs)),
        _spread((run.steps for run in runs), "{:.0f}"),
        _spread((run.final_loss for run in runs), "{:.4f}"),
        _spread((run.largest_gradient_norm for run in runs), "{:.3g}"),
        _spread((run.final_dq_error for run in runs), "{:.3%}"),
        _spread((None if run.step_seconds is None else 1e3 * run.step_seconds for run in runs), "{:.3g} ms"),
    )


def _spread(values: Iterable[float | None], form: str) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "–"
    middle = form.format(statistics.median(known))
    if known[0] == known[-1]:
        return middle
    return f"{middle} ({form.format(known[0])} … {form.format(known[-1])})"
