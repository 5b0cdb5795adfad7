"""How often the check of a backend's clock errs, and what it costs: `python kernels/suite/benchmarks/clock_errors.py`.

Simulates a child on a CPU and on a GPU, quiet and disturbed, with a clock that is right, 10% slow and 10% fast, and
prints how many of the checks accused it and how many seconds they took. On the GPU it is the ruler's own timer
(`cuda_timing`) that runs, over a queue and clocks that are made up: see `Gpu` for what is in them.
"""

import argparse
import random
import statistics
from dataclasses import dataclass
from typing import Any

from gprojci_suite import clock, cuda_timing
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
    """

    name: str
    disturbed: float = 0.0
    pause: float = 0.0
    collected: float = 0.0
    sliced: float = 0.0


MACHINES = (
    Machine("quiet"),
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

    def request(self, calls: int, *, idle: bool) -> Reading:
        """One request of so many calls, or without them."""
        begin = self.now
        self.now += self.noise.lognormvariate(0, 0.5) * 2e-4  # both ways through the pipe, two wake-ups
        if self.noise.random() < self.machine.disturbed:
            self.now += self.noise.expovariate(1 / self.machine.pause)
        claimed = cover = 0.0
        for _ in range(calls):
            taken, covered = self.call(idle=idle)
            claimed, cover = claimed + taken, cover + covered
            if not idle and self.noise.random() < self.machine.collected / 2:
                self.now += 0.1
        return Reading(self.now - begin, 0.0 if idle else self.rate * claimed, calls, cover)

    def collecting(self) -> float:
        """Seconds of the garbage collector within a call."""
        return 0.1 if self.noise.random() < self.machine.collected / 2 else 0.0

    def call(self, *, idle: bool) -> tuple[float, float]:
        """One call on a CPU; seconds of it and of what covers it."""
        self.now += 3e-6
        if idle:
            return 0.0, 0.0
        taken = self.seconds * self.noise.lognormvariate(0, 0.05) + self.collecting()
        self.now += taken + 2e-5  # what the call before returned is freed
        return taken, 0.0


class Gpu(Child):
    """One on CUDA, where `cuda_timing` times it: stands for torch.cuda.

    The host enqueues a pass in about 0.4 ms, the first takes eight seconds; a synchronisation that waits wakes up 50 to
    200 µs late; the allocator's statistics take 150 µs; the crystals of GPU and host are 50 parts per million apart.
    """

    DRIFT = 1 + 5e-5

    def __init__(self, machine: Machine, seconds: float, rate: float, noise: random.Random) -> None:
        super().__init__(machine, seconds, rate, noise)
        self.free = 0.0
        self.timer = cuda_timing.CudaTimer(self, lambda: self.now, lambda: self.launch(8e-6, 8e-5), CYCLES)
        self.compiled = False

    def call(self, *, idle: bool) -> tuple[float, float]:
        """One forward and one backward pass; the kernels' seconds, and those of flushes and spins."""
        taken = [self.timer.time(f"{idle} {name}", lambda: self.run(idle))[0] for name in ("forward", "backward")]
        self.now += 2e-6 if idle else 2e-5
        return sum(each.seconds for each in taken), sum(each.cover for each in taken)

    def run(self, idle: bool) -> None:
        """What is between the events."""
        if idle:
            return
        if not self.compiled:
            self.compiled, self.now = True, self.now + COMPILING
        self.now += self.collecting()
        for _ in range(4):
            self.launch(1e-4 * self.noise.lognormvariate(0, 0.3), self.seconds / 8)

    def launch(self, host: float, device: float) -> None:
        """Enqueue a kernel."""
        self.now += host
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
        self.now += 1e-5

    def max_memory_allocated(self) -> int:
        """Costs what it costs."""
        self.now += 1.5e-4 * self.noise.lognormvariate(0, 0.2)
        return 0

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        """A mark in the queue."""
        gpu = self

        class Event:
            at = 0.0

            def record(self) -> None:
                gpu.now += 4e-6
                self.at = max(gpu.free, gpu.now)

            def elapsed_time(self, end: Any) -> float:
                return float((end.at - self.at) * 1000 * gpu.DRIFT)

        return Event()


def check(child: Child, device: Device) -> tuple[bool, float]:
    """Whether a child is accused after its warm-up, and the seconds that the check took."""
    fastest = min(child.request(1, idle=False).elapsed for _ in range(3))
    begin = child.now

    def empty(calls: int) -> float:
        reading = child.request(calls, idle=True)
        return reading.elapsed - reading.cover

    found = clock.disagreement(lambda calls: child.request(calls, idle=False), empty, fastest, clock.SLACK[device])
    return found is not None, child.now - begin


def main() -> None:
    """Print one line per device, machine, length of a call and clock."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=200, help="checks of each kind (default: 200)")
    checks = parser.parse_args().checks
    print(f"{'device':<7}{'machine':<12}{'call':>8}{'clock':>8}{'accused':>12}{'median s':>10}{'longest s':>11}")
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
                    times = [took for _, took in found]
                    accused = f"{sum(accused for accused, _ in found)}/{checks}"
                    told = f"{accused:>12}{statistics.median(times):>10.2f}{max(times):>11.2f}"
                    print(f"{device:<7}{machine.name:<12}{seconds * 1000:>6g}ms{rate:>8g}{told}", flush=True)


if __name__ == "__main__":
    main()
