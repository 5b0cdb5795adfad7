"""Clocks, throttling and foreign processes of the GPU, before, during and after a run, as nvidia-smi tells them.

A pair measured while the GPU was slowed down for heat or by its hardware is void. The software power cap is reported
but voids nothing: it is the ordinary state of a GPU under full load, and both sides of a pair feel it.
"""

import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Protocol

from gprojci_suite.contract.report import GpuSample
from gprojci_suite.contract.vocabulary import Moment

REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of NVML's clocks event reasons that slow a GPU down."""

IDLE = 0x01
"""Bit of a GPU that has nothing to do: its clocks then say nothing about a measurement."""

VOIDING = frozenset(REASONS.values()) - {"sw_power_cap"}
FIELDS = ("clocks.sm", "clocks.mem", "clocks_throttle_reasons.active")
INTERVAL_MS = 100


class Watch(Protocol):
    """Tells whether what was just measured counts."""

    def begin(self) -> None:
        """What is timed begins now; what happened before is no affair of it."""
        ...

    def throttled(self) -> bool:
        """Whether the device was slowed down since `begin` or the last call; what was timed since then is over."""
        ...


class Steady:
    """The watch of a device that has no throttling to report."""

    def begin(self) -> None:
        """Nothing to remember."""

    def throttled(self) -> bool:
        """Never."""
        return False


STEADY = Steady()


class GpuWatch:
    """Context manager over an nvidia-smi that samples the GPU ten times a second; without one, nothing is known.

    Args:
        gpu: index or UUID, as nvidia-smi takes it.
        command: what to run in place of nvidia-smi.
    """

    def __init__(self, gpu: str, command: Sequence[str] = ("nvidia-smi",)) -> None:
        self._command = [*command, f"--id={gpu}", "--format=csv,noheader,nounits"]
        self._lock = threading.Lock()
        self._latest: frozenset[str] = frozenset()
        self._since: frozenset[str] = frozenset()
        self._during: set[str] = set()
        self._slowest: dict[str, float] = {}
        self._slowest_since: dict[str, float] = {}
        self._slowest_timed: dict[str, float] = {}
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._before: GpuSample | None = None

    def __enter__(self) -> "GpuWatch":
        self._before = self._sample("before")
        try:
            self._process = subprocess.Popen(
                [*self._command, f"--query-gpu={','.join(FIELDS)}", f"--loop-ms={INTERVAL_MS}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            return self  # No nvidia-smi: the report has no samples.
        assert self._process.stdout is not None
        self._thread = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._thread is not None:
            self._thread.join(5.0)

    def begin(self) -> None:
        """Forget the reasons and clocks since the last call of `throttled`."""
        with self._lock:
            self._since, self._slowest_since = frozenset(), {}

    def throttled(self) -> bool:
        """Whether a voiding reason was active at the latest sample or at any since `begin` or the last call."""
        with self._lock:
            seen = self._since | self._latest
            self._since = frozenset()
            _lower(self._slowest_timed, self._slowest_since)
            self._slowest_since = {}
        return bool(seen & VOIDING)

    def samples(self) -> tuple[GpuSample, ...]:
        """Before, during and after; call it once all that ran has ended.

        During are every reason seen, and the slowest clocks of a GPU at work: of what was timed, where anything was,
        since a GPU that kernels are compiled for wakes up for milliseconds.
        """
        with self._lock:
            slowest = self._slowest_timed or self._slowest
            during = GpuSample("during", dict(slowest), tuple(sorted(self._during)), None) if slowest else None
        return tuple(sample for sample in (self._before, during, self._sample("after")) if sample is not None)

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            found = parse(line)
            if found is None:
                continue
            clocks, reasons, idle = found
            with self._lock:
                self._latest = frozenset(reasons)
                self._since |= self._latest
                self._during |= self._latest
                if not idle:
                    _lower(self._slowest, clocks)
                    _lower(self._slowest_since, clocks)

    def _sample(self, moment: Moment) -> GpuSample | None:
        found = parse(self._ask(f"--query-gpu={','.join(FIELDS)}") or "")
        if found is None:
            return None
        processes = self._ask("--query-compute-apps=pid")
        count = None if processes is None else len(processes.split())
        return GpuSample(moment, found[0], tuple(sorted(found[1])), count)

    def _ask(self, query: str) -> str | None:
        try:
            done = subprocess.run([*self._command, query], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None


def _lower(slowest: dict[str, float], clocks: Mapping[str, float]) -> None:
    for name, value in clocks.items():
        slowest[name] = min(value, slowest.get(name, value))


def parse(line: str) -> tuple[dict[str, float], set[str], bool] | None:
    """Clocks in MHz, active reasons and idleness of one line of nvidia-smi, or None where it tells something else."""
    values = [value.strip() for value in line.strip().split(",")]
    if len(values) != len(FIELDS):
        return None
    try:
        clocks = {name: float(value) for name, value in zip(FIELDS[:2], values[:2], strict=True)}
        bits = int(values[2], 16)
    except ValueError:
        return None
    return clocks, {name for bit, name in REASONS.items() if bits & bit}, bool(bits & IDLE)
