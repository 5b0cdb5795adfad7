"""Series with known noise, judged as real ones are: `python -m gprojci_service.regressions.simulation` prints the table
of STEPS.md.

The noise of a point has two parts. What differs from session to session is of Student's t with three degrees of
freedom, with the given standard deviation and correlation between neighbours; the rest, 0.3%, is what the session
itself sees.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gprojci_service.regressions.steps import Point, find_steps

COMMITS = 200
WITHIN = 0.003
"""Standard deviation of a point within its session, which the session reports."""
STEP = 0.03
STEP_AT = 100
SOON = 10
"""Commits within which a step is to be found."""
FAMILY = 1000
"""Series that the project is said to have."""
_WARM_UP = 20


@dataclass(frozen=True)
class Noise:
    """What sessions differ by: standard deviation (a fraction) and correlation of neighbours."""

    between: float
    correlation: float


@dataclass(frozen=True)
class Rates:
    """How simulated series were judged.

    Attributes:
        noise: of their points.
        series: with the same level throughout, and as many with a step.
        false: steps found in those without one.
        soon: series with a step in which it was found within `SOON` commits.
        early: false steps before the true one.
        further: false steps after it, away from the level that it led to.
        delay: commits to the finding, the median.
    """

    noise: Noise
    series: int
    false: int
    soon: int
    early: int
    further: int
    delay: float


TABLE = tuple(Noise(between, correlation) for correlation in (0.0, 0.2) for between in (0.005, 0.01, 0.015, 0.02))


def simulate(noise: Noise, series: int, *, seed: int, step: float = STEP) -> Rates:
    """Judges that many series of `COMMITS` commits without a step, and as many with one at `STEP_AT`."""
    generator = random.Random(seed)  # noqa: S311 (noise, not secrets)
    false = sum(len(find_steps(one_series(generator, noise, 0.0), series=FAMILY)) for _ in range(series))
    early, further = 0, 0
    delays: list[float] = []
    for _ in range(series):
        found = find_steps(one_series(generator, noise, step), series=FAMILY)
        early += sum(one.found < STEP_AT for one in found)
        told = [one.found - STEP_AT + 1 for one in found if one.found >= STEP_AT]
        delays.append(told[0] if told else math.inf)
        further += len(told[1:])
    return Rates(noise, series, false, sum(delay <= SOON for delay in delays), early, further, median(delays))


def one_series(generator: random.Random, noise: Noise, step: float) -> list[Point]:
    """The points of a series whose level rises by `step` at `STEP_AT`."""
    fresh = math.sqrt(1 - noise.correlation**2)
    session, points = 0.0, []
    for position in range(-_WARM_UP, COMMITS):
        session = noise.correlation * session + fresh * noise.between * _student(generator)
        level = math.log1p(step) if position >= STEP_AT else 0.0
        if position >= 0:
            points.append(Point(level + session + generator.gauss(0, WITHIN), WITHIN))
    return points


def _student(generator: random.Random) -> float:
    """Student's t with three degrees of freedom, scaled to a variance of one."""
    return generator.gauss(0, 1) / math.sqrt(generator.gammavariate(1.5, 2.0))


def row(rates: Rates) -> str:
    """A row of the table."""
    thousand = 1000 / rates.series
    delay = "–" if math.isinf(rates.delay) else f"{rates.delay:g}"
    return (
        f"| {rates.noise.between:.1%} | {rates.noise.correlation:g} | {rates.false} of {rates.series} "
        f"({rates.false * thousand:.2g}) | {rates.soon / rates.series:.1%} "
        f"| {delay} | {rates.further * thousand:.2g} |"
    )


HEADER = (
    "| between sessions | correlation | false steps in series of 200 commits (per 1,000) "
    "| +3% found within 10 commits | commits to find it "
    "| false steps in the 100 commits after it, per 1,000 |\n|---|---|---|---|---|---|"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m gprojci_service.regressions.simulation", description=__doc__)
    parser.add_argument("--series", type=int, default=2000, help="series of each kind in each row (2000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    print(HEADER)
    for noise in TABLE:
        print(row(simulate(noise, options.series, seed=options.seed)), flush=True)


if __name__ == "__main__":
    main()
