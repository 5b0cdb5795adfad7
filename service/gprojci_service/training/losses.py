"""Mean losses over any stretch of a run, so that runs whose curves were thinned differently can be compared."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise

from gprojci_suite.contract.training import Curve

STRETCHES = 40
"""Stretches that `parts_from` tells apart: in one of them single batches weigh little."""


class Losses:
    """The loss of a run, summed over its steps: a curve's point is the mean of the steps since the one before it.

    Attributes:
        last: the last step before a loss that is no finite number.
    """

    def __init__(self, curve: Curve) -> None:
        self._steps, self._sums = [0], [0.0]
        for step, loss in zip(curve.steps, curve.loss, strict=True):
            if not math.isfinite(loss):
                break
            self._sums.append(self._sums[-1] + loss * (step - self._steps[-1]))
            self._steps.append(step)
        self.last = self._steps[-1]

    def mean(self, begin: int, end: int) -> float:
        """Of the steps after `begin` up to `end`; exact where both are a point's last step, else interpolated."""
        return (self._sum(end) - self._sum(begin)) / (end - begin)

    def _sum(self, step: int) -> float:
        place = bisect_left(self._steps, step)
        if self._steps[place] == step:
            return self._sums[place]
        before, after = self._steps[place - 1], self._steps[place]
        share = (step - before) / (after - before)
        return self._sums[place - 1] + share * (self._sums[place] - self._sums[place - 1])


def parts_from(own: Losses, other: Losses, by: float) -> int | None:
    """The step by which the loss lies more than `by` above the other's, and stays there as far as both go.

    It is the last step of the first of STRETCHES equal stretches from which on every mean lies that much above; None
    where the last of them does not.
    """
    last = min(own.last, other.last)
    edges = sorted({math.ceil(last * place / STRETCHES) for place in range(STRETCHES + 1)})
    found = None
    for begin, end in reversed(list(pairwise(edges))):
        if not own.mean(begin, end) - other.mean(begin, end) > by:
            break
        found = end
    return found
