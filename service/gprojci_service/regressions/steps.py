"""Where a series stepped: the one place where it is decided that a curve over commits has changed its level.

Page's cumulative sum (E. S. Page, Biometrika 41, 1954) of log likelihood ratios between "the level is what it was" and
"it is higher, by the smallest step or more", under noise of Student's t with three degrees of freedom, whose tails are
those of timings. Lorden (Annals of Mathematical Statistics 42, 1971): whatever starts at the right level passes the
threshold h falsely at most once in e^h points. STEPS.md has the rule in words, why this one, and how often it errs.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

SMALLEST_STEP = 0.02
"""Nothing smaller is looked for, as a fraction; what is found is at least half of it."""
NOISE_MULTIPLE = 3.0
"""Nor anything smaller than this many standard deviations of the measured noise."""
NOISE_FLOOR = 0.002
"""No series counts as quieter than this, a fraction: also bits that repeat exactly differ under another compiler."""
COMMITS_PER_FALSE_STEP = 500
"""Over how many commits all series of a project together may have one false step."""
DEPENDENCE = 1.5
"""(1 + r) / (1 - r) at r = 0.2, the correlation of neighbours: so much less do their likelihoods count."""
FIRST = 30
"""Points before anything can be told of a series."""
WINDOW = 100
"""Points that level and noise are taken from, the newest before the step."""
PERSISTENCE = 3
"""Points that must be at the new level."""

_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_MAD_TO_T3_SCALE = 1 / 0.7649
_T3_AT_ZERO = 2 / (math.pi * math.sqrt(3))
_SMALLEST = math.log1p(SMALLEST_STEP)
_LEAST = 0.8  # weight of the smallest step among all that are looked for
_OUTLIER = 1.5
_CENTRE_VARIANCE = math.pi / 2 * DEPENDENCE  # of a median of n points, over theirs and times n
_YOUNG = 4.0  # a spread of n points is taken for larger by this over n: it may be too small by chance


@dataclass(frozen=True)
class Point:
    """One value of a series at one commit.

    Attributes:
        value: natural logarithm of the ratio or of the error.
        spread: standard deviation of `value` as its own session measured it; 0 where it did not.
    """

    value: float
    spread: float = 0.0


@dataclass(frozen=True)
class Step:
    """A change of level.

    Attributes:
        index: of the first point at the new level.
        found: of the point that told it.
        before: level before, the median of the logarithms.
        after: level after, of the points from `index` to `found`.
        noise: robust standard deviation of a point before the step.
    """

    index: int
    found: int
    before: float
    after: float
    noise: float

    @property
    def change(self) -> float:
        """New over old level, minus one: 0.03 is +3%."""
        return math.expm1(self.after - self.before)


class _Window:
    """Some adjacent points, their values and spreads kept in order of size while the window moves on."""

    def __init__(self, points: Sequence[Point], start: int, end: int) -> None:
        self._points, self._start, self._end = points, start, end
        self.values = sorted(point.value for point in points[start:end])
        self.spreads = sorted(point.spread for point in points[start:end])

    def move(self, start: int, end: int) -> None:
        """To the points from `start` to before `end`, both at or behind where they were."""
        for point in self._points[self._end : end]:
            insort(self.values, point.value)
            insort(self.spreads, point.spread)
        for point in self._points[self._start : start]:
            del self.values[bisect_left(self.values, point.value)]
            del self.spreads[bisect_left(self.spreads, point.spread)]
        self._start, self._end = start, end


def _middle(ordered: Sequence[float]) -> float:
    """The median of values in order of size."""
    half, odd = divmod(len(ordered), 2)
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


def _median_deviation(ordered: Sequence[float], centre: float) -> float:
    """The median of the distances from `centre` of values in order of size, without a look at most of them: the nearest
    half of them stand together, and bisection finds where they begin."""
    half, odd = divmod(len(ordered), 2)
    start, end = 0, len(ordered) - half
    while start < end:
        middle = (start + end) // 2
        if centre - ordered[middle] <= ordered[middle + half] - centre:
            end = middle
        else:
            start = middle + 1
    beyond = [abs(centre - ordered[place]) for place in (start - 1, start + half) if 0 <= place < len(ordered)]
    if odd:
        return min(beyond)
    return (max(centre - ordered[start], ordered[start + half - 1] - centre) + min(beyond)) / 2


@dataclass(slots=True)
class _Level:
    """What is known of the level that a series is at.

    Attributes:
        centre: median of its points.
        noise: robust standard deviation of a point.
        scale: of Student's t with that noise.
        smallest: step that is looked for.
        size: `smallest` over `scale`.
        most: what one point counts for at most.
    """

    centre: float
    noise: float
    scale: float
    smallest: float
    size: float
    most: float

    @classmethod
    def of(cls, points: _Window, known_noise: float | None) -> _Level:
        """From the points at it. A level that has just been stepped to has few; until it has `FIRST` of them its noise
        is that of the level before, widened by how little is known of the new centre."""
        centre, count = _middle(points.values), len(points.values)
        if known_noise is not None and count < FIRST:
            noise = known_noise * math.sqrt(1 + _CENTRE_VARIANCE / count)
        else:
            deviation = _median_deviation(points.values, centre) * (1 + _YOUNG / count)
            noise = max(_MAD_TO_SIGMA * deviation, NOISE_FLOOR, _middle(points.spreads))
        scale = noise / _MAD_TO_SIGMA * _MAD_TO_T3_SCALE
        smallest = max(_SMALLEST, NOISE_MULTIPLE * noise)
        size = smallest / scale
        return cls(centre, noise, scale, smallest, size, _OUTLIER * 2 * math.log(1 + size * size / 3))

    def evidence(self, value: float, sign: int) -> float:
        """Log likelihood ratio of one point, for a step up (+1) or down (-1) against none.

        A step is of the smallest size, or of any larger one with Pareto's density size / r² beyond it. No point counts
        for more than `_OUTLIER` times what one at the smallest step does, however far out it lies.
        """
        size = self.size
        r = sign * (value - self.centre) / self.scale
        likelihood = _LEAST / (1 + (r - size) ** 2 / 3) ** 2
        if r > size:
            likelihood += (1 - _LEAST) * size / r**2 / _T3_AT_ZERO
        return min(math.log((1 + r * r / 3) ** 2 * likelihood), self.most)


@dataclass(slots=True)
class _Sum:
    """The cumulative sum of one direction, and since which point it is above zero."""

    sign: int
    since: int
    total: float = field(default=0.0)


def threshold(series: int) -> float:
    """What the sum of log likelihood ratios must pass, in a project of that many series."""
    return DEPENDENCE * math.log(max(series, 1) * COMMITS_PER_FALSE_STEP)


def find_steps(points: Sequence[Point], *, series: int) -> list[Step]:
    """The steps of one series, oldest first, in both directions.

    Points stand in the order of their commits. `series` is how many are looked at in the project: the more there are,
    the more one of them must show. A step that was found stays when points are added behind it.
    """
    limit = threshold(series)
    steps: list[Step] = []
    while (step := _next_step(points, steps[-1] if steps else None, limit)) is not None:
        steps.append(step)
    return steps


def _next_step(points: Sequence[Point], last: Step | None, limit: float) -> Step | None:
    """The first step away from the level that the last one led to, or that the series began at."""
    start, first = (last.index, last.found + 1) if last else (0, FIRST)
    if len(points) <= first:
        return None
    known_noise = last.noise if last else None
    sums = (_Sum(+1, first), _Sum(-1, first))
    settled, window = first, _Window(points, start, first)
    level = _Level.of(window, known_noise)
    for index in range(first, len(points)):
        for one in sums:
            one.total += level.evidence(points[index].value, one.sign)
            if one.total <= 0:
                one.total, one.since = 0.0, index + 1
            elif one.total >= limit and index + 1 - one.since >= PERSISTENCE:
                after = median(point.value for point in points[one.since : index + 1])
                if one.sign * (after - level.centre) >= level.smallest / 2:
                    return Step(one.since, index, level.centre, after, level.noise)
        undoubted = min(one.since for one in sums)
        if undoubted > settled:
            settled = undoubted
            window.move(max(start, settled - WINDOW), settled)
            level = _Level.of(window, known_noise)
    return None
