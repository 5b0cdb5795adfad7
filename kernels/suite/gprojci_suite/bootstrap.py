"""Median of paired ratios with a bootstrap interval, and whether the interval decides against a margin."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000


@dataclass(frozen=True)
class RatioInterval:
    """exp(median(log ratios)) and the ends of its bootstrap interval."""

    ratio: float
    low: float
    high: float


def ratio_interval(ratios: Sequence[float], confidence: float, seed: int) -> RatioInterval:
    """Percentile bootstrap of the median log ratio.

    Args:
        ratios: positive ratios of pairs, at least one.
        confidence: coverage of the interval, between 0 and 1.
        seed: of the resampling; the same ratios and seed give the same interval.
    """
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    picks = np.random.default_rng(seed).integers(0, len(logs), size=(RESAMPLES, len(logs)))
    medians = np.median(logs[picks], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return RatioInterval(*(float(np.exp(value)) for value in (np.median(logs), low, high)))


def decides(interval: RatioInterval, margin: float) -> bool:
    """Whether the whole interval of ratio − 1 lies on one side of `margin`."""
    return interval.low - 1 > margin or interval.high - 1 < margin
