"""What a step of the training suite consists of: `python kernels/suite/benchmarks/training_step.py --backend fa3`.

Trains the transformer of the training suite on random tokens with each backend in turn, ten steps at a time. Prints the
time of a step, its ratio to that of the first backend, and by which kernels the two differ.
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch

from gprojci_suite import kernel_profile
from gprojci_suite.contract.training import TrainingModel, TrainingOptimizer
from gprojci_suite.contract.vocabulary import PROJECTIONS
from gprojci_suite.decision import ratio_interval
from gprojci_suite.readable import plain
from gprojci_suite.training.backend import BackendAttention
from gprojci_suite.training.data import VOCABULARY
from gprojci_suite.training.model import Transformer, parts
from gprojci_suite.training.optimizers import Optimizers

AT_ONCE = 10
DIFFERENT = 0.01
"""Milliseconds of a step from which on a kernel is printed: by so much it takes longer than with the first backend."""


class Trained:
    """A model in training with a backend, NAME or NAME=module:callable."""

    def __init__(self, backend: str, options: argparse.Namespace) -> None:
        name, _, entry = backend.partition("=")
        device, shape = options.device, (options.batch, options.sequence)
        sizes = TrainingModel(
            options.layers, options.width, options.heads, options.sequence, "learned", PROJECTIONS, compiled=True
        )
        self.device, self.name = device, name
        self.model = Transformer(sizes).to(device)
        self.optimizers = Optimizers(self.model, TrainingOptimizer(0.02, 0.003), replay=not options.one_by_one)
        self.attention = BackendAttention(name, entry or None, sizes, options.batch, device)
        self.parts = parts(device, compiled=True)
        self.tokens, self.targets = (torch.randint(VOCABULARY, shape, device=device) for _ in range(2))

    def step(self) -> None:
        """Train one step, without waiting for it."""
        self.optimizers.zero_grad()
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.model(self.tokens, self.targets, self.attention, self.parts)
        torch.autograd.backward(loss)
        self.optimizers.step(1)

    def times(self) -> tuple[float, float]:
        """Milliseconds of a step, and those in which the host launched it."""
        self._wait()
        begin = time.perf_counter()
        for _ in range(AT_ONCE):
            self.step()
        launched = time.perf_counter()
        self._wait()
        return 1e3 * (time.perf_counter() - begin) / AT_ONCE, 1e3 * (launched - begin) / AT_ONCE

    def kernels(self) -> dict[str, tuple[float, float]]:
        """Launches and milliseconds of a step by kernel; nothing on a CPU."""
        found: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        if self.device != "cuda":
            return found
        with tempfile.TemporaryDirectory() as folder:
            trace, _ = kernel_profile.trace(torch, self._some, Path(folder, "trace.json"))
        for event in trace["traceEvents"]:
            if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy"):
                launches, milliseconds = found[event["name"]]
                found[event["name"]] = launches + 1 / AT_ONCE, milliseconds + event["dur"] / 1e3 / AT_ONCE
        return found

    def _some(self) -> None:
        for _ in range(AT_ONCE):
            self.step()

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", action="append", required=True, metavar="NAME[=module:callable]")
    parser.add_argument("--device", default="cuda", help="device to train on (default: cuda)")
    parser.add_argument("--rounds", type=int, default=30, help="rounds of ten steps with each (default: 30)")
    parser.add_argument("--layers", type=int, default=6, help="layers (default: 6)")
    parser.add_argument("--width", type=int, default=1024, help="width (default: 1024)")
    parser.add_argument("--heads", type=int, default=16, help="heads (default: 16)")
    parser.add_argument("--sequence", type=int, default=2048, help="tokens of a sequence (default: 2048)")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step (default: 8)")
    parser.add_argument("--one-by-one", action="store_true", help="launch Muon's kernels one by one, not as a graph")
    options = parser.parse_args()
    trained = [Trained(backend, options) for backend in options.backend]
    for one in trained:
        one.times()
    rounds = [[one.times() for one in trained] for _ in range(options.rounds)]
    profiles = [one.kernels() for one in trained]
    for place, one in enumerate(trained):
        steps = [times[place][0] for times in rounds]
        ratio = ratio_interval([times[place][0] / times[0][0] for times in rounds], 0.95, seed=0)
        busy = sum(milliseconds for _, milliseconds in profiles[place].values())
        print(
            f"{one.name}: step {statistics.median(steps):.2f} ms, fastest {min(steps):.2f}, "
            f"{ratio.ratio:.4f} ({ratio.low:.4f} to {ratio.high:.4f}) of {trained[0].name}'s; launched in "
            f"{statistics.median(times[place][1] for times in rounds):.2f} ms; kernels {busy:.2f} ms, "
            f"{plain(sum(launches for launches, _ in profiles[place].values()))} of them"
        )
        for kernel in sorted({*profiles[0], *profiles[place]}, key=lambda k: -profiles[place][k][1]):
            launches, milliseconds = profiles[place][kernel]
            more = milliseconds - profiles[0][kernel][1]
            if place and abs(more) >= DIFFERENT:
                print(f"  {more:+.3f} ms in {launches:.1f} launches ({milliseconds:.3f} ms): {kernel[:120]}")


if __name__ == "__main__":
    main()
