"""Times of one pass on a GPU: its kernels on a cold L2 without their launch, and what the launch takes on the host.

Events around a Python call show the kernels alone only where all of them were enqueued before the first could start. So
the GPU is kept busy: behind the flush of the L2 and in front of the first event it spins (`torch.cuda._sleep`) for as
long as the host needs to enqueue the call, with a reserve. How long that is was measured in the warm-up, for each case
and pass, while nothing spun; where a later call takes longer, those after it are waited for longer. A backend that
itself waits for the GPU lets the spins grow to their cap by that, which costs milliseconds and hides nothing more.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

FLUSH_BYTES = 2**28
DISCARDED = 2
"""Calls whose host time says nothing, since they compile, load kernels and allocate."""
CALIBRATED = 3
"""Calls after these whose host time is measured before anything spins."""
SPIN_FACTOR = 1.5
RECENT = 8
RECENT_FACTOR = 1.25
SPIN_SLACK = 50e-6
SPIN_CAP = 0.010
"""Longest spin in seconds; a host that takes longer is partly in the time, as without a spin."""
RATE_CYCLES = 2_000_000
RATE_REPEATS = 50


@dataclass
class HostTimes:
    """How long the host took to enqueue one pass of one case, call by call, in seconds."""

    seen: list[float] = field(default_factory=list)
    spun: list[float] = field(default_factory=list)
    """Of the calls that the GPU waited for."""

    def spin_seconds(self) -> float:
        """How long the GPU must wait for the host, capped; 0 before it is calibrated.

        1.5 × the median calibrating call, or 1.25 × the longest of the last RECENT calls that it waited for, if that is
        more, + 50 µs.
        """
        calibrating = self.seen[DISCARDED : DISCARDED + CALIBRATED]
        if len(calibrating) < CALIBRATED:
            return 0.0
        longest = max(self.spun[-RECENT:], default=0.0)
        return min(SPIN_CAP, max(SPIN_FACTOR * statistics.median(calibrating), RECENT_FACTOR * longest) + SPIN_SLACK)


@dataclass(frozen=True)
class PassTime:
    """One pass: seconds of its kernels, of the host to enqueue it, of what covers it before, and peak bytes.

    The cover is the flush, the spin, and what is freed ahead of them. `late` are the seconds by which the host took
    longer than a spin that could have been longer: up to so many are in the time of the kernels.
    """

    seconds: float
    host: float
    cover: float
    peak: int
    late: float


class CudaTimer:
    """Times passes of one case; a new case takes a new timer.

    Args:
        cuda: torch.cuda, or what stands for it in a test.
        clock: the host's, in seconds.
        flush: fills a buffer of FLUSH_BYTES, larger than any L2.
        cycles_per_second: of the counter that a spin waits for, from `cycle_rate`.
    """

    def __init__(
        self, cuda: Any, clock: Callable[[], float], flush: Callable[[], object], cycles_per_second: float
    ) -> None:
        self.cuda = cuda
        self.clock = clock
        self.flush = flush
        self.cycles_per_second = cycles_per_second
        self.host: defaultdict[str, HostTimes] = defaultdict(HostTimes)
        # Made once: making one may enter the driver, which others keep busy for milliseconds.
        self.before, self.start, self.end = (cuda.Event(enable_timing=True) for _ in range(3))

    def time(
        self,
        name: str,
        call: Callable[[], Any],
        *,
        free: Callable[[], object] = lambda: None,
        spins: bool = True,
        counts: bool = True,
    ) -> tuple[PassTime, Any]:
        """Time one call of the pass `name`; returns its times and what it returned.

        Args:
            name: of the pass; its host times are kept.
            call: what is timed.
            free: called first, in the time of the cover, so that nothing but the ruler's own work is beside both.
            spins: whether the GPU waits for the host, once that is calibrated.
            counts: whether the host's time is that of the pass.
        """
        self.before.record()
        free()
        self.cuda.reset_peak_memory_stats()
        self.flush()
        spin = self.host[name].spin_seconds() if spins else 0.0
        if spin > 0:
            self.cuda._sleep(int(spin * self.cycles_per_second))
        self.start.record()
        begin = self.clock()
        result = call()
        host = self.clock() - begin
        self.end.record()
        self.cuda.synchronize()
        if counts:
            (self.host[name].spun if spin > 0 else self.host[name].seen).append(host)
        seconds, cover = self.start.elapsed_time(self.end) / 1000, self.before.elapsed_time(self.start) / 1000
        late = max(0.0, host - spin) if 0 < spin < SPIN_CAP else 0.0
        return PassTime(seconds, host, cover, self._peak(), late), result

    def _peak(self) -> int:
        # Not `max_memory_allocated`: it flattens and sorts all statistics first, 150 µs of Python that nothing hides.
        allocated = self.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]
        return int(allocated["peak"]) - FLUSH_BYTES


def cycle_rate(cuda: Any) -> float:
    """Cycles per second of the counter that `torch.cuda._sleep` waits for.

    The fastest of 50 spins of about a millisecond: an idle GPU takes a while to raise its clock, and a spin must not be
    short when the clock rises later.
    """
    rates = []
    for _ in range(RATE_REPEATS):
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        cuda._sleep(RATE_CYCLES)
        end.record()
        cuda.synchronize()
        rates.append(RATE_CYCLES / (start.elapsed_time(end) / 1000))
    return float(max(rates))
