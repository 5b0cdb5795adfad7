"""How often the check of a backend's clock errs, and what it costs: `python kernels/suite/benchmarks/clock_errors.py`.

Simulates a child on a CPU and on a GPU, quiet and disturbed, with a clock that is right, 10% slow and 10% fast, and
prints how many of the checks accused it, how many told nothing, and the seconds they took. On the GPU it is the ruler's
own timer (`cuda_timing`) that runs, over a queue and clocks that are made up: see `Gpu` for what is in them.
"""

import argparse
import random
import statistics
from dataclasses import dataclass
from typing import Any

from gprojci_suite import clock, cuda_timing, throughput
from gprojci_suite.clock import Reading
from gprojci_suite.contract.vocabulary import Device

CYCLES = 1.7e9
COMPILING = 8.0


@dataclass(frozen=True)
class Machine:
    """What happens beside the calls.

    Attributes:
        name: for people.
        disturbed: share of requests that something else holds up.
        pause: mean seconds of such a disturbance, exponentially distributed.
        collected: share of calls in or after which the garbage collector takes 100 ms.
        sliced: share of kernels before which another process gets a time slice of 2 ms on the GPU.
        stalls: per second of the host's work, each of 5 ms: another program holds the driver, or the core.
        cold: how much slower the ruler's Python is behind a call of the backend than in a request without them.
        drift: standard deviation of the logarithm by which the host is slower from one request to the next.
    """

    name: str
    disturbed: float = 0.0
    pause: float = 0.0
    collected: float = 0.0
    sliced: float = 0.0
    stalls: float = 0.0
    cold: float = 1.0
    drift: float = 0.0


MACHINES = (
    Machine("quiet"),
    Machine("watched", stalls=10.0, cold=2.0, drift=0.15),
    Machine("shared", disturbed=0.1, pause=0.02, collected=2e-4, sliced=0.01),
    Machine("overloaded", disturbed=0.7, pause=0.05, collected=1e-3, sliced=0.05),
)


class Child:
    """A backend's process: the parent's clock is `now`.

    Args:
        machine: it runs on.
        seconds: of one call.
        rate: of its clock.
        noise: where all randomness comes from.
    """

    def __init__(self, machine: Machine, seconds: float, rate: float, noise: random.Random) -> None:
        self.machine = machine
        self.seconds = seconds
        self.rate = rate
        self.noise = noise
        self.now = 0.0
        self.slow = 1.0

    def work(self, seconds: float) -> None:
        """The host's work beside the calls."""
        seconds *= self.slow
        if self.machine.stalls and self.noise.random() < self.machine.stalls * seconds:
            seconds += 5e-3
        self.now += seconds

    def request(self, calls: int, *, idle: bool = False, spins: bool = False) -> Reading:
        """One request of so many calls, or without them."""
        self.slow = self.noise.lognormvariate(0, self.machine.drift)
        begin = self.now
        self.now += self.noise.lognormvariate(0, 0.5) * 2e-4  # both ways through the pipe, two wake-ups
        if self.noise.random() < self.machine.disturbed:
            self.now += self.noise.expovariate(1 / self.machine.pause)
        claimed = cover = 0.0
        for _ in range(calls):
            taken, covered = self.call(idle=idle, spins=spins)
            claimed, cover = claimed + taken, cover + covered
            if not idle and self.noise.random() < self.machine.collected / 2:
                self.now += 0.1
        return Reading(self.now - begin, 0.0 if idle else self.rate * claimed, calls, cover)

    def empty(self, calls: int) -> Reading:
        """One without the calls."""
        return self.request(calls, idle=True)

    def collecting(self) -> float:
        """Seconds of the garbage collector within a call."""
        return 0.1 if self.noise.random() < self.machine.collected / 2 else 0.0

    def call(self, *, idle: bool, spins: bool) -> tuple[float, float]:
        """One call on a CPU; seconds of it and of what covers it."""
        self.work(3e-6)
        if idle:
            return 0.0, 0.0
        taken = self.seconds * self.noise.lognormvariate(0, 0.05) + self.collecting()
        self.now += taken
        self.work(2e-5)  # what the call before returned is freed
        return taken, 0.0


class Gpu(Child):
    """One on CUDA, where `cuda_timing` times it: stands for torch.cuda.

    The host enqueues a pass in about 0.4 ms, the first takes eight seconds, and the next one ten times as long as
    others; a synchronisation that waits wakes up 50 to 200 µs late; freeing a graph takes 30 µs; the crystals of GPU
    and host are 50 parts per million apart.
    """

    DRIFT = 1 + 5e-5

    def __init__(self, machine: Machine, seconds: float, rate: float, noise: random.Random) -> None:
        super().__init__(machine, seconds, rate, noise)
        self.free = 0.0
        self.timer = cuda_timing.CudaTimer(self, lambda: self.now, lambda: self.launch(8e-6, 8e-5), CYCLES)
        self.passes = 0
        self.behind = 1.0

    def call(self, *, idle: bool, spins: bool) -> tuple[float, float]:
        """One forward and one backward pass; the kernels' seconds, and those of flushes and spins."""
        self.behind = 1.0 if idle else self.machine.cold
        free = (lambda: None) if idle else (lambda: self.work(3e-5))
        taken = [
            self.timer.time(name, lambda: self.run(idle), free=free, spins=spins, counts=not idle)[0]
            for name in ("forward", "backward")
        ]
        self.work(2e-5 * self.behind)
        return sum(each.seconds for each in taken), sum(each.cover for each in taken)

    def run(self, idle: bool) -> None:
        """What is between the events."""
        if idle:
            return
        self.passes += 1
        if self.passes == 1:
            self.now += COMPILING
        loading = 10 if self.passes <= 4 else 1
        self.now += self.collecting()
        for _ in range(4):
            self.launch(loading * 1e-4 * self.noise.lognormvariate(0, 0.3), self.seconds / 8)

    def launch(self, host: float, device: float) -> None:
        """Enqueue a kernel."""
        self.work(host)
        sliced = 2e-3 if self.noise.random() < self.machine.sliced else 0.0
        self.free = max(self.free, self.now + 5e-6) + device + sliced

    def _sleep(self, cycles: int) -> None:
        self.launch(5e-6, cycles / CYCLES)

    def synchronize(self) -> None:
        """Wait, and wake up late."""
        late = self.noise.uniform(5e-5, 2e-4) if self.free > self.now else 0.0
        self.now = max(self.now, self.free) + late

    def reset_peak_memory_stats(self) -> None:
        """Costs what it costs."""
        self.work(1e-5)

    def memory_stats_as_nested_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """Costs what it costs."""
        self.work(2e-5 * self.behind)
        return {"allocated_bytes": {"all": {"peak": 0}}}

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        """A mark in the queue."""
        gpu = self

        class Event:
            at = 0.0

            def record(self) -> None:
                gpu.work(4e-6)
                self.at = max(gpu.free, gpu.now)

            def elapsed_time(self, end: Any) -> float:
                return float((end.at - self.at) * 1000 * gpu.DRIFT)

        return Event()


def check(child: Child, device: Device) -> clock.Check:
    """What the check of a child found after its warm-up."""
    fastest = min(child.request(1, spins=True).elapsed for _ in range(throughput.WARM_UP + 1))
    slack, now = clock.SLACK[device], lambda: child.now
    return clock.check(child.request, child.empty, fastest, slack, order=child.noise, now=now)


def main() -> None:
    """Print one line per device, machine, length of a call and clock."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=200, help="checks of each kind (default: 200)")
    checks = parser.parse_args().checks
    counts = f"{'accused':>12}{'unclear':>10}{'median s':>10}{'longest s':>11}"
    print(f"{'device':<7}{'machine':<12}{'call':>8}{'clock':>8}{counts}")
    cases: tuple[tuple[Device, type[Child], tuple[float, ...]], ...] = (
        ("cpu", Child, (0.002, 0.05, 1.0)),
        ("cuda", Gpu, (0.0002, 0.0019, 0.004, 0.05)),
    )
    for device, kind, lengths in cases:
        for machine in MACHINES:
            for seconds in lengths:
                for rate in (1.0, 0.9, 1.1):
                    noise = random.Random(f"{device} {machine.name} {seconds} {rate}")  # noqa: S311
                    found = [check(kind(machine, seconds, rate, noise), device) for _ in range(checks)]
                    times = [one.seconds for one in found]
                    accused, unclear = (
                        f"{sum(one.verdict == verdict for one in found)}/{checks}"
                        for verdict in ("disagrees", "unclear")
                    )
                    told = f"{accused:>12}{unclear:>10}{statistics.median(times):>10.2f}{max(times):>11.2f}"
                    print(f"{device:<7}{machine.name:<12}{seconds * 1000:>6g}ms{rate:>8g}{told}", flush=True)


if __name__ == "__main__":
    main()
