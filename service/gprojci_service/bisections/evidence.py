"""What a report says of one metric at head over base: a ratio with its interval, and whether that is good or bad.

Accuracy: the error over the base's, its interval widened by the run-to-run spread that either showed in the session.
Memory: the peak over the base's, which is the same in every run.
Time: the interval of the paired ratio, as the ruler gives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gprojci_service.bisections.search import Word
from gprojci_suite.contract.report import AccuracySummary, Report
from gprojci_suite.contract.vocabulary import PASSES, TENSORS

ACCURACY_METRICS = tuple(f"{tensor}_{kind}" for tensor in TENSORS for kind in ("error", "error_worst"))
TIME_METRICS = (*(f"{name}_seconds" for name in PASSES), "step_seconds")
MEMORY_METRIC = "peak_memory"
METRICS = (*ACCURACY_METRICS, MEMORY_METRIC, *TIME_METRICS)
# Errors of the same code differ far less than this from run to run.
LEAST_ERROR_RATIO = 1.05
# What an allocator rounds up to is less.
LEAST_MEMORY_RATIO = 1.01


@dataclass(frozen=True)
class Observation:
    """A metric of a backend and case: head over base. Infinite where the head has NaN or Inf, or the base no error."""

    backend: str
    case: str
    ratio: float
    low: float
    high: float


def observations(report: Report, metric: str) -> list[Observation]:
    """Every pair of head and base in the report that has this metric, one of `METRICS`."""
    if metric == MEMORY_METRIC:
        return list(_memory(report))
    return list(_errors(report, metric) if metric in ACCURACY_METRICS else _times(report, metric))


def _errors(report: Report, metric: str) -> Iterator[Observation]:
    tensor, _, kind = metric.partition("_")
    lines = [line for line in (report.accuracy.summary if report.accuracy else ()) if line.tensor == tensor]
    bases = {(line.backend, line.input): line for line in lines if line.revision == "base"}
    for head in (line for line in lines if line.revision == "head"):
        base = bases.get((head.backend, head.input))
        if base is None or head.slices == head.vanishing:
            continue
        ratio = _ratio(_value(head, kind), _value(base, kind))
        widened = 1 + max(head.spread or 0.0, base.spread or 0.0)
        exact = not math.isfinite(ratio)
        low, high = (ratio, ratio) if exact else (ratio / widened, ratio * widened)
        yield Observation(head.backend, head.input, ratio, low, high)


def _value(line: AccuracySummary, kind: str) -> float:
    if line.nonfinite:
        return math.inf
    return line.worst if kind == "error_worst" else line.median


def _ratio(head: float, base: float) -> float:
    if not math.isfinite(base):
        return 1.0  # worse than NaN there is not
    if not math.isfinite(head):
        return math.inf
    if base == 0:
        return 1.0 if head == 0 else math.inf
    return head / base


def _memory(report: Report) -> Iterator[Observation]:
    peaks = report.peak_memory()
    for (backend, revision, case), peak in peaks.items():
        base = peaks.get((backend, "base", case))
        if revision == "head" and base is not None:
            yield Observation(backend, case, peak / base, peak / base, peak / base)


def _times(report: Report, metric: str) -> Iterator[Observation]:
    passed = metric.removesuffix("_seconds")
    section = report.step if passed == "step" else report.throughput
    for entry in section.comparisons if section else ():
        same = entry.backend == entry.against_backend and not entry.control
        if same and entry.pass_ == passed and (entry.revision, entry.against_revision) == ("head", "base"):
            yield Observation(entry.backend, entry.case, entry.ratio, entry.low, entry.high)


def pick(found: list[Observation], backend: str | None, case: str | None) -> Observation | None:
    """The observation of that backend and case; where one is not named, the one that is surest to be worse."""
    fitting = [item for item in found if backend in (None, item.backend) and case in (None, item.case)]
    return max(fitting, key=lambda item: (item.low, item.ratio), default=None)


def first_threshold(metric: str) -> float:
    """The ratio from which on the bad commit counts as worse at all."""
    if metric == MEMORY_METRIC:
        return LEAST_MEMORY_RATIO
    return LEAST_ERROR_RATIO if metric in ACCURACY_METRICS else 1.0


def halfway(ratio: float) -> float:
    """The ratio from which on a commit counts as bad: half-way, in the logarithm, from the good to the bad commit.

    Where the bad commit's is not finite, only such commits are bad.
    """
    return math.sqrt(ratio)


def word(observation: Observation, threshold: float) -> Word:
    """Bad where the whole interval lies at or above the threshold, good where it lies below, else unsure."""
    if observation.low >= threshold:
        return "bad"
    return "good" if observation.high < threshold else "unsure"
