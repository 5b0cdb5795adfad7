"""What the clock check reads of one backend: `python kernels/suite/benchmarks/clock_readings.py --backend sdpa-flash`.

Starts a peer in a process of its own, warms it up, and sends it requests of timed calls and empty ones in random order,
with and without spins. Prints for each kind, in milliseconds per call, the request by the ruler's clock, flushes and
spins in it, the calls by the child's clock, and what is left beside: that of real requests should be within 0.1 (a CPU:
0.05) of that of empty ones. Ends after `--seconds`; needs torch alone, on a GPU or with `--device cpu`.
"""

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch

from gprojci_suite import exchange
from gprojci_suite.answers import COVER_LIMIT, cover_of, steps_of
from gprojci_suite.contract.spec import LimitsSpec
from gprojci_suite.cuda_timing import CALIBRATED, DISCARDED
from gprojci_suite.ending import Ending
from gprojci_suite.process import BackendFailure, BackendProcess, available_threads

BATCHES = (1, 10, 100)
ROUNDS = 12


class Backend:
    """A peer's process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.limits = LimitsSpec()
        self.process = BackendProcess(sys.executable, directory, available_threads(), self.limits, Ending())

    def close(self) -> None:
        """End it."""
        self.process.close()

    def load(self, options: argparse.Namespace) -> None:
        """Load the peer and its case; raises BackendFailure."""
        start = {"peer": options.backend, "entry": None, "site": "", "path": None}
        self.ask("start", **start, device=options.device, threads=available_threads())
        sizes = [int(size) for size in options.shape.split("x")]
        file = self.directory / "case.safetensors"
        exchange.save(file, {name: torch.randn(*sizes).to(torch.bfloat16) for name in ("q", "k", "v", "do")})
        self.ask("load", file=str(file), causal=True, softmax_scale=sizes[3] ** -0.5)

    def ask(self, do: str, **fields: object) -> dict[str, object]:
        """The answer to a command; raises BackendFailure."""
        return self.process.request({"do": do, **fields}, self.limits.call_seconds)

    def read(self, calls: int, *, idle: bool, spin: bool) -> tuple[float, float, float, float]:
        """Seconds per call of one request: all of it, its flushes and spins, its calls, and the host's launches."""
        self.ask("turn", audit=None)
        begin = time.perf_counter()
        answer = self.ask("time", repeat=calls, idle=idle, spin=spin)
        elapsed = time.perf_counter() - begin
        steps = [] if idle else steps_of(answer, calls)
        claimed = sum(step.forward_backward for step in steps)
        host = sum(step.host("forward_backward") or 0.0 for step in steps)
        cover = cover_of(answer, calls, COVER_LIMIT)
        return elapsed / calls, cover / calls, claimed / calls, host / calls


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", default="sdpa-math", help="peer of the ruler (default: sdpa-math)")
    parser.add_argument("--shape", default="1x8x1024x64", help="batch x heads x sequence x head_dim")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"), help="device (default: cuda)")
    parser.add_argument("--seconds", type=float, default=15.0, help="when to stop reading (default: 15)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gprojci-clock-") as directory:
        try:
            with contextlib.closing(Backend(Path(directory))) as backend:
                backend.load(options)
                _read(backend, options.seconds)
        except BackendFailure as failure:
            raise SystemExit(str(failure)) from failure


def _read(backend: Backend, seconds: float) -> None:
    print(f"{'calls':>6}{'kind':>12}{'request':>10}{'cover':>10}{'claimed':>10}{'launch':>10}  beside", flush=True)
    for number in range(DISCARDED + CALIBRATED + 3):
        _print(1, f"warm-up {number}", [backend.read(1, idle=False, spin=True)])
    end = time.perf_counter() + seconds
    for calls in BATCHES:
        kinds = [(idle, spin) for idle in (False, True) for spin in (False, True)]
        found: defaultdict[tuple[bool, bool], list[tuple[float, float, float, float]]] = defaultdict(list)
        for _ in range(ROUNDS):
            if time.perf_counter() > end:
                break
            for idle, spin in random.sample(kinds, len(kinds)):
                found[idle, spin].append(backend.read(calls, idle=idle, spin=spin))
        for (idle, spin), readings in sorted(found.items()):
            _print(calls, ("empty" if idle else "real") + (" spun" if spin else ""), readings)


def _print(calls: int, kind: str, readings: list[tuple[float, float, float, float]]) -> None:
    medians = [statistics.median(column) * 1000 for column in zip(*readings, strict=True)]
    beside = sorted((elapsed - cover - claimed) * 1000 for elapsed, cover, claimed, _ in readings)
    columns = "".join(f"{value:>10.4f}" for value in medians)
    print(f"{calls:>6}{kind:>12}{columns}  {' '.join(f'{value:.4f}' for value in beside)}", flush=True)


if __name__ == "__main__":
    main()
