"""A training report as text: one line per backend, the median, lowest and highest values of its completed runs."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from gprojci_suite.contract.training import TrainingReport, TrainingRun, above_reference, reference
from gprojci_suite.readable import percent, plain
from gprojci_suite.table import in_columns

HEADER = (
    "backend",
    "completed",
    "final loss",
    "minus {}",
    "largest gradient norm",
    "in the second half",
    "dq error at the end",
    "at its worst",
    "step",
    "in the fastest tenth",
)


def render(report: TrainingReport) -> str:
    """The table, and below it what was written, and what befell the runs that were not completed."""
    backends = dict.fromkeys(run.backend for run in report.runs)
    header = tuple(title.format(reference(backends) or "fp32") for title in HEADER)
    completed = {(run.backend, run.seed): run.final_loss for run in report.runs if run.status == "completed"}
    above = above_reference({key: loss for key, loss in completed.items() if loss is not None})
    rows = [header, *(_row([run for run in report.runs if run.backend == name], above) for name in backends)]
    lines = [f"{report.name}, {report.setup.steps} steps", *in_columns(rows)]
    for run in report.runs:
        if run.detail is not None and not _never_begun(run):
            loss = "" if run.final_loss is None else f", loss {run.final_loss:.4f}"
            lines.append(f"{_named(run)}: {run.status} at step {run.steps}{loss}: {run.detail.splitlines()[0]}")
        lines += [f"{_named(run)} wrote {item.file}" for item in run.captures]
    return "\n".join([*lines, *_not_begun(report.runs)])


def _row(runs: list[TrainingRun], above: Mapping[tuple[str, int], float]) -> tuple[str, ...]:
    """A backend's; `above` is what `contract.training.above_reference` gives."""
    # Loss, norms and errors of a run depend on how far it came: those of one that ended early are no other's equals.
    completed = [run for run in runs if run.status == "completed"]
    return (
        runs[0].backend,
        f"{len(completed)} of {len(runs)}",
        _spread((run.final_loss for run in completed), "{:.4f}".format),
        _spread((above.get((run.backend, run.seed)) for run in completed), "{:+.4f}".format),
        _spread((run.largest_gradient_norm for run in completed), plain),
        _spread((run.late_gradient_norm for run in completed), plain),
        _spread((run.final_dq_error for run in completed), percent),
        _spread((run.largest_dq_error for run in completed), percent),
        _spread((run.step_seconds for run in completed), _milliseconds),
        _spread((run.fast_step_seconds for run in completed), _milliseconds),
    )


def _milliseconds(seconds: float) -> str:
    return f"{plain(1e3 * seconds)} ms"


def _never_begun(run: TrainingRun) -> bool:
    return run.status == "ended_early" and run.initial_weights is None


def _not_begun(runs: Iterable[TrainingRun]) -> Iterator[str]:
    """One line per reason."""
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.detail is not None and _never_begun(run):
            reasons[run.detail][run.backend].append(str(run.seed))
    for reason, backends in reasons.items():
        names = "; ".join(
            f"{name} seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}" for name, seeds in backends.items()
        )
        yield f"not begun, {reason}: {names}"


def _named(run: TrainingRun) -> str:
    return f"{run.backend} seed {run.seed}"


def _spread(values: Iterable[float | None], form: Callable[[float], str]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "–"
    middle = form(statistics.median(known))
    if known[0] == known[-1]:
        return middle
    return f"{middle} ({form(known[0])} … {form(known[-1])})"
