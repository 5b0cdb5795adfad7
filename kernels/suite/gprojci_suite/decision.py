"""What is a regression: the interval of a ratio, and on which side of a margin it lies. DECIDING.md explains it.

Times are compared as paired log ratios of interleaved calls: the machine's state is common to a pair and cancels. The
median of the log ratios stands for the case, its percentile bootstrap interval (scipy.stats.bootstrap) for what is not
known of it, and the verdict is taken from the whole interval, never from the median alone.

Pairs of the same two processes share what these two differ by for as long as they live, so they are a cluster and not
independent. With several processes the median of each cluster is one observation: their mean stands for the case, and
its interval is that of Student's t (scipy.stats.t) with one degree of freedom less than there are processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

RESAMPLES = 2000
SESSION_DRIFT = 0.015
"""Standard deviation between two sessions of the same time on the same machine (measured on an H200), a fraction."""

Side = Literal["above", "below", "undecided"]


@dataclass(frozen=True)
class RatioInterval:
    """A median ratio and the ends of its interval."""

    ratio: float
    low: float
    high: float


def ratio_interval(ratios: Sequence[float], confidence: float, seed: int, processes: int = 1) -> RatioInterval:
    """The ratio of one session's pairs with its interval.

    One process: exp(median(log ratios)) and its percentile bootstrap interval. Several: exp(mean of the medians of the
    log ratios of each process) and its interval by Student's t. The median makes a cluster robust against single slow
    calls; the t interval widens with what the processes differ by, which more pairs would not average out.

    Args:
        ratios: positive ratios of pairs, at least two; ratio i was measured by process i mod `processes`.
        confidence: coverage of the interval, between 0 and 1.
        seed: of the resampling; the same ratios and seed give the same interval. Not used for several processes.
        processes: processes of each of the two that were compared.
    """
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    if len(logs) < 2:
        raise ValueError("an interval needs at least two samples")
    if processes == 1:
        return _interval((logs,), _median, confidence, seed)
    medians = _medians(logs, processes)
    spread = _standard_error(medians) * stats.t.ppf((1 + confidence) / 2, len(medians) - 1)
    return _from_logs(medians.mean(), medians.mean() - spread, medians.mean() + spread)


def between_sessions(
    first: Sequence[float],
    second: Sequence[float],
    confidence: float,
    seed: int,
    *,
    anchored: bool,
    processes: tuple[int, int] = (1, 1),
) -> RatioInterval:
    """The middle of `second` over that of `first`, two sessions whose samples do not pair, with its interval.

    Where either session had one process of each, the middles are medians and the interval is a bootstrap of both; what
    two processes differ by is then not known. Where both had several, the middles are means of the processes' medians
    and the interval is Welch's: Student's t with degrees of freedom by Welch and Satterthwaite.

    Args:
        first: positive samples of one session, at least two: ratios to an anchor, or seconds.
        second: those of the other session.
        confidence: coverage of the interval, between 0 and 1.
        seed: of the resampling.
        anchored: whether the samples are ratios to the same anchor, in which the session cancels. Seconds do not
            cancel it: their interval is widened by the drift between two sessions, √2 · SESSION_DRIFT · quantile.
        processes: of the first and of the second session; sample i was measured by process i mod its number.
    """
    logs = [np.log(np.asarray(samples, dtype=np.float64)) for samples in (first, second)]
    if min(processes) > 1:
        found = _welch(_medians(logs[0], processes[0]), _medians(logs[1], processes[1]), confidence)
    else:
        found = _interval(tuple(logs), _difference_of_medians, confidence, seed)
    if anchored:
        return found
    drift = float(np.exp(np.sqrt(2) * SESSION_DRIFT * stats.norm.ppf((1 + confidence) / 2)))
    return RatioInterval(found.ratio, found.low / drift, found.high * drift)


def side(low: float, high: float, margin: float) -> Side:
    """Where the interval of a ratio lies: `above` 1 + margin as a whole, `below` it as a whole, else `undecided`."""
    if low - 1 > margin:
        return "above"
    return "below" if high - 1 < margin else "undecided"


def decides(interval: RatioInterval, margin: float) -> bool:
    """Whether the whole interval of ratio − 1 lies on one side of `margin`."""
    return side(interval.low, interval.high, margin) != "undecided"


def next_look(pairs: int, max_pairs: int) -> int | None:
    """How many pairs an undecided comparison is measured up to: twice as many, at most `max_pairs`; None at the cap."""
    return min(2 * pairs, max_pairs) if pairs < max_pairs else None


def _median(logs: Any, axis: int = -1) -> Any:
    return np.median(logs, axis=axis)


def _difference_of_medians(first: Any, second: Any, axis: int = -1) -> Any:
    return np.median(second, axis=axis) - np.median(first, axis=axis)


def _medians(logs: Any, processes: int) -> Any:
    """Median of the log ratios of each process that has measured any."""
    return np.array([np.median(logs[first::processes]) for first in range(min(processes, len(logs)))])


def _standard_error(values: Any) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _welch(first: Any, second: Any, confidence: float) -> RatioInterval:
    middle = second.mean() - first.mean()
    if _standard_error(first) == _standard_error(second) == 0:
        return _from_logs(middle, middle, middle)
    found = stats.ttest_ind(second, first, equal_var=False).confidence_interval(confidence)
    return _from_logs(middle, found.low, found.high)


def _from_logs(*values: float) -> RatioInterval:
    return RatioInterval(*(float(np.exp(value)) for value in values))


def _interval(samples: tuple[Any, ...], statistic: Any, confidence: float, seed: int) -> RatioInterval:
    middle = float(statistic(*samples))
    # scipy refuses samples of one value; nothing can be resampled from them.
    if any(len(sample) < 2 for sample in samples):
        raise ValueError("an interval needs at least two samples")
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return _from_logs(middle, found.low, found.high)
