"""What came of the runs of a training, backend by backend, with the spread over seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gprojci_service.training.losses import Losses, parts_from
from gprojci_suite.contract.training import FINISHED, TrainingReport, TrainingRun, above_reference, reference

PARTED = 0.1
"""Nats per token above the reference's with the same seed from which a loss counts as parted: more than a backend with
right gradients has moved it in any of the measured trainings."""

ALARM = 0.01
"""Error of dQ in the end (a fraction) from which it is wrong: more than a backend with a right dQ had there in any of
the measured trainings."""


@dataclass(frozen=True)
class Spread:
    """A value over seeds: its median, smallest and largest. What is no finite number counts as the largest."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class BackendSummary:
    """One backend over its seeds; a value is None where no run has it."""

    backend: str
    seeds: tuple[int, ...]
    statuses: tuple[tuple[str, int], ...]
    """Each status with the number of runs that have it, the most frequent first."""
    steps: Spread
    final_loss: Spread | None
    """Mean loss of the last steps of the runs that completed or diverged; while there are none, of all so far."""
    loss_difference: Spread | None
    """Mean loss minus that of the reference with the same seed, over as many steps up to the last that both took."""
    compared_at: Spread | None
    """That step."""
    largest_gradient_norm: Spread | None
    late_gradient_norm: Spread | None
    """Largest norm in the second half of a run: the largest of all is mostly that of its first steps."""
    final_dq_error: Spread | None
    """Error of dq in the worst head at the last measured step of the runs of `final_loss`, a fraction."""
    step_seconds: Spread | None
    """Median time of a step; of runs that had the device to themselves alone."""
    fast_step_seconds: Spread | None
    """Time of a step in the fastest tenth of a run; of the same runs."""
    alarm_step: Spread | None
    """Step at which `capture.watch` would have warned; of runs in which it would."""
    alarm_runs: int
    """Runs in which it would."""
    parted_step: Spread | None
    """Step by which the loss lies PARTED above the reference's with the same seed to stay; of runs in which it does."""
    parted_runs: int
    """Runs in which it does."""


def summaries(report: TrainingReport) -> tuple[BackendSummary, ...]:
    """One entry per backend, in the report's order."""
    grouped: dict[str, list[TrainingRun]] = {}
    for run in report.runs:
        grouped.setdefault(run.backend, []).append(run)
    against = reference(grouped)
    matched = {run.seed: run for run in grouped.get(against or "", [])}
    return tuple(_summary(name, found, {} if name == against else matched) for name, found in grouped.items())


def _summary(backend: str, runs: list[TrainingRun], matched: Mapping[int, TrainingRun]) -> BackendSummary:
    final = [run for run in runs if run.status in FINISHED] or runs
    compared = [_compared(run, matched[run.seed]) for run in runs if run.seed in matched]
    pairs = [pair for pair in compared if pair is not None]
    alarms = [run.alarm_step for run in runs if run.alarm_step is not None]
    parted = [step for run in runs if run.seed in matched if (step := _parted(run, matched[run.seed])) is not None]
    return BackendSummary(
        backend=backend,
        seeds=tuple(sorted(run.seed for run in runs)),
        statuses=statuses(run.status for run in runs),
        steps=spread(run.steps for run in runs) or Spread(0, 0, 0),
        final_loss=spread(run.final_loss for run in final),
        loss_difference=spread(difference for difference, _ in pairs),
        compared_at=spread(step for _, step in pairs),
        largest_gradient_norm=spread(run.largest_gradient_norm for run in runs),
        late_gradient_norm=spread(run.late_gradient_norm for run in runs),
        final_dq_error=spread(run.final_dq_error for run in final),
        step_seconds=spread(run.step_seconds for run in runs),
        fast_step_seconds=spread(run.fast_step_seconds for run in runs),
        alarm_step=spread(alarms),
        alarm_runs=len(alarms),
        parted_step=spread(parted),
        parted_runs=len(parted),
    )


def furthest(losses: Mapping[tuple[str, int], float]) -> tuple[str, float] | None:
    """The backend of the run whose final loss lies highest above the reference's with the same seed, and by how much.

    None where no run has one beside it.

    Args:
        losses: final losses of runs that have come to their end, by backend and seed.
    """
    return largest((backend, difference) for (backend, _), difference in above_reference(losses).items())


def largest(values: Iterable[tuple[str, float]]) -> tuple[str, float] | None:
    """The largest of values of backends, with its backend; what is no finite number counts as the largest."""
    return max(values, key=lambda item: _finite_or_infinite(item[1]), default=None)


def statuses(found: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Each status with how often it is there, the most frequent first."""
    return tuple(Counter(found).most_common())


def _compared(run: TrainingRun, other: TrainingRun) -> tuple[float, int] | None:
    """Difference of the losses, and the step up to which it is that; None where one of them has no finite loss."""
    if run.steps == other.steps and run.final_loss is not None and other.final_loss is not None:
        return run.final_loss - other.final_loss, run.steps
    own, its = Losses(run.curve), Losses(other.curve)
    last = min(own.last, its.last)
    if last == 0:
        return None
    begin = max(0, last - max(run.final_steps, other.final_steps, 1))
    return own.mean(begin, last) - its.mean(begin, last), last


def _parted(run: TrainingRun, other: TrainingRun) -> int | None:
    """The step by which its loss has parted; at the latest that of its end where it diverged and the other did not."""
    step = parts_from(Losses(run.curve), Losses(other.curve), PARTED)
    return run.steps if step is None and (run.status, other.status) == ("diverged", "completed") else step


def spread(values: Iterable[float | None]) -> Spread | None:
    """Over the values that are there; None without any."""
    present: Sequence[float] = [value for value in values if value is not None]
    found = sorted(present, key=_finite_or_infinite)
    if not found:
        return None
    middle = median(found) if math.isfinite(found[-1]) else found[(len(found) - 1) // 2]
    return Spread(middle, found[0], found[-1])


def _finite_or_infinite(value: float) -> float:
    """What is no finite number counts as the largest."""
    return value if math.isfinite(value) else math.inf
