"""Does a backend's own clock agree with the ruler's? The times of a report are the child's; this holds them to account.

A round. The parent takes its own time W around a request of n timed calls, whose times the child says add up to C, and
its times E around k requests that do everything but call the backend (same loop, same cold cache, same
synchronisation), all in an order drawn anew. The GPU does not spin in any of them: a launch that nothing hides is in C
and in W. What it took to flush its cache and free the last results (`answers.cover_of`, bounded) is taken off W and E.
The child's clock may be off by

    a = 5% · (W − min E) + n · slack,     slack = 50 µs on a CPU, 100 µs on CUDA.

The verdict. Of an honest child W − C is what a request costs beside its calls, and so is E: whatever a busy machine
adds falls on either by chance, since the order is. So their ranks are compared and not their sizes (Mann and Whitney's
U, exact, one-sided, `scipy.stats.mannwhitneyu`):

- it disagrees as soon as the W − C − a lie above the E, or the W − C + a below them, with p < 1e-6: four rounds of 21
  requests that leave no doubt, or five of nine. That is an honest child's chance of being accused at any one look;
- it agrees as soon as the W − C − a lie below the E and the W − C + a above them, each with p < 0.002: two such rounds,
  or three.

The bound. n makes the first stage's seconds of what a call took in a request sent ahead, and the later stage's of what
one took in the first; k are 8 to 20, as many as take as long as the n calls. Each stage is judged by itself: what falls
beside the calls does not grow with them as a clock's error does. Without a verdict the check ends after SECONDS, or
after CALLS of the calls where those take longer: the machine is overloaded or the error close to a, nobody is accused,
and the report says what was read. Where the readings speak against the child by then (of an honest one they do so by a
chance of SUSPECTED), the check goes on to PATIENCE times that. Only the request under way is waited for.

What can be seen. A clock that is 10% off is beyond a where a call takes more than 20 · slack: 1 ms on a CPU, 2 ms on
CUDA, its launch included, and well beyond where it takes twice that; shorter calls hide a larger lie. `python
kernels/suite/benchmarks/clock_errors.py` simulates both devices.

The first calls of a case, which compile for seconds, are not judged: nothing of them is reported, and over eight
seconds the crystals of GPU and host drift apart by as much as a request costs (50 parts per million are 0.4 ms).

Single calls, which make the report, are checked together in the end, in case a clock is honest in batches only. After
every fourth an empty request is taken, on CUDA with the same spin. The lower quartile of W − C must not exceed the
largest of these by more than 5% of the median C and 5 ms (CUDA: 1 ms), and the upper quartile must not be below zero by
more than clocks drift: no call takes longer than the request for it. That is less sharp: nothing but the calls
themselves can be repeated. Single training steps are checked in this way too, their empty request being one that does
nothing.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scipy import stats

from gprojci_suite.contract.timing import ClockCheck
from gprojci_suite.contract.vocabulary import Agreement, Device, Revision

TOLERANCE = 0.05
SLACK: dict[Device, float] = {"cpu": 50e-6, "cuda": 100e-6}
SINGLE_SLACK: dict[Device, float] = {"cpu": 5e-3, "cuda": 1e-3}
DRIFT = 2e-3
"""Share by which one honest clock may run faster than another."""
AHEAD = 0.01
"""Seconds of the calls of the request sent ahead."""
STAGES = ((0.03, 5), (0.4, 12))
"""Seconds of the calls of a request, and most rounds, of each stage."""
SECONDS = 2.0
CALLS = 8
"""How long a check takes at most: so many seconds, or so many times the fastest call."""
SUSPECTED = 1e-2
PATIENCE = 3
"""Where the chance of the readings of an honest child is below SUSPECTED by then, so many times as long."""
EMPTIES = (8, 20)
"""Fewest and most empty requests of a round."""
EMPTY_EVERY = 4
MOST_CALLS = 5000
ORDER = random.SystemRandom()
"""Of the requests of a round; no child can foresee it."""
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


def batch(seconds: float, call: float) -> int:
    """Calls of a request that is to take so many seconds."""
    return max(1, min(MOST_CALLS, int(seconds / call)))


@dataclass
class Readings:
    """Readings of requests of equally many calls, and the seconds of empty ones among them beside their cover."""

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

    def judge(self, slack: float) -> tuple[bool | None, float]:
        """Whether both clocks are the same, given the seconds allowed per call; None while nothing is certain.

        Second is the doubt: the chance that an honest child's readings look so much like those of another clock.
        """
        allowed = [
            TOLERANCE * max(reading.elapsed - reading.cover - min(self.empties), 0.0) + reading.calls * slack
            for reading in self.readings
        ]
        least = [reading.beside - off for reading, off in zip(self.readings, allowed, strict=True)]
        most = [reading.beside + off for reading, off in zip(self.readings, allowed, strict=True)]
        doubt = min(self._p(least, "greater"), self._p(most, "less"))
        if doubt < DISAGREES:
            return False, doubt
        agrees = max(self._p(least, "less"), self._p(most, "greater")) < AGREES
        return agrees or None, doubt

    def _p(self, beside: Sequence[float], side: Literal["greater", "less"]) -> float:
        return float(stats.mannwhitneyu(beside, self.empties, alternative=side, method="exact").pvalue)


@dataclass(frozen=True)
class Check:
    """What a check found, the readings that it rests on, and the seconds that it took."""

    verdict: Agreement
    rounds: Rounds
    seconds: float

    def entry(self, backend: str, revision: Revision, case: str, process: int) -> ClockCheck:
        """The report's entry."""
        readings, empties = self.rounds.readings, self.rounds.empties
        calls, empty = readings[0].calls, statistics.median(empties)
        return ClockCheck(
            backend=backend,
            revision=revision,
            case=case,
            process=process,
            verdict=self.verdict,
            calls=calls,
            requests=len(readings),
            child_seconds=statistics.median(reading.claimed for reading in readings) / calls,
            ruler_seconds=statistics.median(reading.elapsed - reading.cover - empty for reading in readings) / calls,
            empties=len(empties),
            empty_low=min(empties) / calls,
            empty_high=max(empties) / calls,
            check_seconds=self.seconds,
        )


def check(
    timed: Callable[[int], Reading],
    empty: Callable[[int], Reading],
    fastest: float,
    slack: float,
    *,
    patient: bool = True,
    order: random.Random = ORDER,
    now: Callable[[], float] = time.perf_counter,
) -> Check:
    """Hold the child's clock against the ruler's, within the bound above.

    Args:
        timed: takes a reading of so many calls in one request.
        empty: takes one of the same request without them.
        fastest: seconds of the fastest request of one call so far.
        slack: seconds that the clock may be off per call.
        patient: whether one who is suspected is looked at for longer.
        order: what the order of a round's requests is drawn with.
        now: the ruler's clock.
    """
    begin = now()
    bound = max(SECONDS, CALLS * fastest)
    ahead = batch(AHEAD, fastest)
    typical, blank = timed(ahead), empty(ahead)
    rounds, doubt = Rounds([typical], [blank.beside]), 1.0
    for seconds, most in STAGES:
        calls = batch(seconds, typical.elapsed / typical.calls)
        stage, elapsed = Rounds(), [blank.elapsed * calls / blank.calls]
        empties = _empties(typical.elapsed * calls / typical.calls / elapsed[0])
        for _ in range(most):
            for real in order.sample([True, *[False] * empties], empties + 1):
                spent = now() - begin
                if spent >= bound and not (patient and doubt < SUSPECTED and spent < PATIENCE * bound):
                    return Check("unclear", rounds, spent)
                reading = timed(calls) if real else empty(calls)
                if real:
                    stage.readings.append(reading)
                else:
                    stage.empties.append(reading.beside)
                    elapsed.append(reading.elapsed)
            rounds, (agrees, doubt) = stage, stage.judge(slack)
            if agrees is not None:
                return Check("agrees" if agrees else "disagrees", rounds, now() - begin)
        typical = sorted(rounds.readings, key=lambda reading: reading.elapsed)[len(rounds.readings) // 2]
        blank = Reading(statistics.median(elapsed), 0.0, calls)
    return Check("unclear", rounds, now() - begin)


def _empties(fit: float) -> int:
    """Empty requests of a round when so many take as long as its calls."""
    fewest, most = EMPTIES
    return max(fewest, min(most, int(fit)))


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
