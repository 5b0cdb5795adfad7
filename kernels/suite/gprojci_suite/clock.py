"""Does a backend's own clock agree with the ruler's? The times of a report are the child's; this holds them to account.

A round. The parent takes its own time W around a request of n timed calls, whose times the child says add up to C, and
its times E around five requests that do everything but call the backend (same loop, same cold cache, same
synchronisation), all six in an order drawn anew. On CUDA what the GPU flushed and waited before the calls
(`answers.cover_of`, bounded) is taken off W and E. The child's clock may be off by

    a = 5% · (W − min E) + n · slack,     slack = 50 µs on a CPU, 100 µs on CUDA (what nothing hides of a launch).

The verdict. Of an honest child W − C is what a request costs beside its calls, and so is E: whatever a busy machine
adds falls on either by chance, since the order is. So their ranks are compared and not their sizes (Mann and Whitney's
U, exact, one-sided, `scipy.stats.mannwhitneyu`):

- it disagrees as soon as the W − C − a lie above the E, or the W − C + a below them, with p < 1e-6: six rounds that
  leave no doubt. For an honest child that is the chance of being accused at any one look, on any machine;
- it agrees as soon as the W − C − a lie below the E and the W − C + a above them, each with p < 0.002: three rounds.

n makes 0.1 s by the parent's clock. Six such rounds without a verdict are followed by up to twelve of 0.4 s and six of
1.6 s, each kind judged by itself: what falls beside the calls does not grow with them as a clock's error does. Where
these tell nothing either, because the machine is overloaded or the error close to a, nobody is accused.

What can be seen. A clock that is 10% off is beyond a where a call takes more than 20 · slack: 1 ms on a CPU, 2 ms on
CUDA, and well beyond where it takes twice that; shorter calls hide a larger lie. `python
kernels/suite/benchmarks/clock_errors.py` simulates both devices.

The first calls of a case, which compile for seconds, are not judged: nothing of them is reported, and over eight
seconds the crystals of GPU and host drift apart by as much as a request costs (50 parts per million are 0.4 ms).

Single calls, which make the report, are checked together in the end, in case a clock is honest in batches only. After
every fourth an empty request is taken. The lower quartile of W − C must not exceed the largest of these by more than 5%
of the median C and 5 ms (CUDA: 1 ms), and the upper quartile must not be below zero by more than clocks drift: no call
takes longer than the request for it. That is less sharp: nothing but the calls themselves can be repeated. Single
training steps are checked in this way too, their empty request being one that does nothing.
"""

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scipy import stats

from gprojci_suite.contract.vocabulary import Device

TOLERANCE = 0.05
SLACK: dict[Device, float] = {"cpu": 50e-6, "cuda": 100e-6}
SINGLE_SLACK: dict[Device, float] = {"cpu": 5e-3, "cuda": 1e-3}
DRIFT = 2e-3
"""Share by which one honest clock may run faster than another."""
STAGES = ((0.1, 6), (0.4, 12), (1.6, 6))
"""Seconds of the calls of a request, and rounds, of each stage."""
EMPTIES = 5
EMPTY_EVERY = 4
MOST_CALLS = 5000
AGREES = 2e-3
DISAGREES = 1e-6


@dataclass(frozen=True)
class Reading:
    """Seconds by the ruler's clock around a request, what the child claims for the `calls` within, and their cover."""

    elapsed: float
    claimed: float
    calls: int = 1
    cover: float = 0.0

    @property
    def beside(self) -> float:
        """Seconds of the request beside its calls and what covered their launch."""
        return self.elapsed - self.cover - self.claimed


def batches(fastest: float) -> Iterator[tuple[int, int]]:
    """Calls of a request, and rounds, stage by stage, when the fastest request of one call took so many seconds."""
    for seconds, rounds in STAGES:
        yield max(1, min(MOST_CALLS, int(seconds / fastest))), rounds


@dataclass
class Readings:
    """Readings of requests of equally many calls, and the seconds of empty requests among them, less their cover."""

    readings: list[Reading] = field(default_factory=list)
    empties: list[float] = field(default_factory=list)

    @property
    def called(self) -> float:
        """Seconds that all calls took by the ruler's clock."""
        empty = statistics.median(self.empties)
        return sum(reading.elapsed - reading.cover - empty for reading in self.readings)

    @property
    def claimed(self) -> float:
        """Seconds that the child claims for them."""
        return sum(reading.claimed for reading in self.readings)


class Rounds(Readings):
    """Those of the rounds of one stage."""

    def agrees(self, slack: float) -> bool | None:
        """Whether both clocks are the same, given the seconds allowed per call; None while nothing is certain."""
        allowed = [
            TOLERANCE * max(reading.elapsed - reading.cover - min(self.empties), 0.0) + reading.calls * slack
            for reading in self.readings
        ]
        least = [reading.beside - off for reading, off in zip(self.readings, allowed, strict=True)]
        most = [reading.beside + off for reading, off in zip(self.readings, allowed, strict=True)]
        if min(self._p(least, "greater"), self._p(most, "less")) < DISAGREES:
            return False
        if max(self._p(least, "less"), self._p(most, "greater")) < AGREES:
            return True
        return None

    def _p(self, beside: Sequence[float], side: Literal["greater", "less"]) -> float:
        return float(stats.mannwhitneyu(beside, self.empties, alternative=side, method="exact").pvalue)


def disagreement(
    timed: Callable[[int], Reading], empty: Callable[[int], float], fastest: float, slack: float
) -> Rounds | None:
    """The rounds that show that the child's clock is another than the ruler's; None when it agrees, or none is certain.

    Args:
        timed: takes a reading of so many calls in one request.
        empty: seconds of the same request without them, less their cover.
        fastest: seconds of the fastest request of one call so far.
        slack: seconds that the clock may be off per call.
    """
    order = random.SystemRandom()
    for calls, most in batches(fastest):
        rounds = Rounds()
        for _ in range(most):
            for real in order.sample([True, *[False] * EMPTIES], EMPTIES + 1):
                if real:
                    rounds.readings.append(timed(calls))
                else:
                    rounds.empties.append(empty(calls))
            agrees = rounds.agrees(slack)
            if agrees is not None:
                return None if agrees else rounds
    return None


class SingleCalls(Readings):
    """Those of single calls, with an empty request after every fourth."""

    def due(self) -> bool:
        """Whether an empty request is to be taken now."""
        return len(self.readings) % EMPTY_EVERY == 0

    def agree(self, slack: float) -> bool:
        """Whether the child's clock can be the ruler's, given the seconds allowed per call; so can too few calls."""
        if len(self.readings) < 2 * EMPTY_EVERY:
            return True
        lower, _, upper = statistics.quantiles([reading.beside for reading in self.readings], n=4)
        claimed = statistics.median(reading.claimed for reading in self.readings)
        return -DRIFT * claimed <= upper and lower <= max(self.empties) + TOLERANCE * claimed + slack
