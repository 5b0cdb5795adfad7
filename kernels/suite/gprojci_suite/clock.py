"""Does a backend's own clock agree with the ruler's? The times of a report are the child's; this holds them to account.

Batches. The parent takes its own time W around a request of n timed calls, and around five requests that do everything
but call the backend (same loop, same cold cache, same synchronisation); E is the least of these. With C the sum that
the child claims for its n calls, an attempt agrees when

    |W − E − C| ≤ 5% · (W − E) + n · slack,     slack = 50 µs on a CPU, 100 µs on CUDA (a launch that nothing hides).

A claim of more than the parent's own time is refused at once, but for a drift: the clock of a GPU and that of its host
are two crystals, and the first call of a case, which compiles, lasts ten seconds with little else in the parent's time.

On CUDA what the GPU flushed and waited before the calls (`answers.cover_of`, bounded) is taken off W and E.

The first attempt has 0.2 s of calls, each further one twice as many, up to 6.4 s (or 5,000 calls), eight in all. One in
agreement clears the backend; none is a `wrong_result`. A busy machine accuses nobody: what other processes take within
the calls goes into W and C alike, and what they take around them does not grow with the batch as the allowance does. A
clock that is 10% fast disagrees by the same share in each attempt.

Single calls, which make the report, are checked together in the end, in case a clock is honest in batches only. After
every fourth an empty request is taken. The lower quartile of W − C must not exceed the largest of these by more than
5% of the median C and 5 ms (CUDA: 1 ms). That is less sharp: nothing but the calls themselves can be repeated.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gprojci_suite.contract.vocabulary import Device

TOLERANCE = 0.05
SLACK: dict[Device, float] = {"cpu": 50e-6, "cuda": 100e-6}
SINGLE_SLACK: dict[Device, float] = {"cpu": 5e-3, "cuda": 1e-3}
DRIFT = 2e-3
"""Share by which one honest clock may run faster than another."""
ATTEMPTS = 8
DOUBLINGS = 5
EMPTIES = 5
EMPTY_EVERY = 4
BATCH_SECONDS = 0.2
MOST_CALLS = 5000


@dataclass(frozen=True)
class Reading:
    """Seconds by the ruler's clock around a request, and what the child claims for the `calls` within."""

    elapsed: float
    claimed: float
    calls: int = 1

    def agrees(self, empty: float, slack: float) -> bool:
        """Whether both clocks tell the same, given the seconds of an empty request and those allowed per call."""
        called = self.elapsed - empty
        return abs(called - self.claimed) <= TOLERANCE * max(called, 0.0) + self.calls * slack


def batches(fastest: float) -> Iterator[int]:
    """Calls of each attempt, when the fastest call took so many seconds."""
    for attempt in range(ATTEMPTS):
        yield max(2, min(MOST_CALLS, int(BATCH_SECONDS * 2 ** min(attempt, DOUBLINGS) / fastest)))


@dataclass
class SingleCalls:
    """Readings of single calls, and the seconds of empty requests between them."""

    readings: list[Reading] = field(default_factory=list)
    empties: list[float] = field(default_factory=list)

    def due(self) -> bool:
        """Whether an empty request is to be taken now."""
        return len(self.readings) % EMPTY_EVERY == 0

    def agree(self, slack: float) -> bool:
        """Whether the child's clock can be the ruler's, given the seconds allowed per call; so can too few calls."""
        if len(self.readings) < 2 * EMPTY_EVERY:
            return True
        beside = _lower_quartile([reading.elapsed - reading.claimed for reading in self.readings])
        claimed = statistics.median(reading.claimed for reading in self.readings)
        return beside <= max(self.empties) + TOLERANCE * claimed + slack


def _lower_quartile(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=4)[0]
