"""What `capture` costs a training step: `python kernels/suite/benchmarks/capture_cost.py`.

Trains a small transformer on one device, steps with and without the recorder in turn, and prints the ratio of their
times with its interval (see DECIDING.md): for steps that are not recorded, and for recorded ones.
"""

import argparse
import random
import tempfile
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

from gprojci_suite.capture import Recorder, capture
from gprojci_suite.decision import ratio_interval

RECORDED = range(1, 10**9)
"""Steps from one on are recorded; step zero never is."""


class Block(nn.Module):
    """Attention and a feed-forward layer, both with a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, width) → the same."""
        batch, seq, width = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, seq, width))
        return x + self.feed(x)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", help="device to train on (default: cpu)")
    parser.add_argument("--pairs", type=int, default=200, help="pairs of steps (default: 200)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the model (default: 4)")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(128, 4) for _ in range(options.layers))).to(options.device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(2, 256, 128, device=options.device, dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        model(data).float().square().mean().backward()
        optimizer.step()

    def seconds(recorder: Recorder | None, number: int) -> float:
        """One step; what a recorded one leaves to be written belongs to it."""
        begin = time.perf_counter()
        if recorder is not None:
            recorder.step(number)
        step()
        if options.device != "cpu":
            torch.cuda.synchronize()
        if recorder is not None and number in RECORDED:
            recorder.step(0)
        return time.perf_counter() - begin

    for _ in range(10):
        step()
    order = random.Random(0)  # noqa: S311 (an order of measurements, not a secret)
    with tempfile.TemporaryDirectory() as folder, capture(folder, layers=[0, 1], steps=RECORDED) as recorder:
        for what, number, pairs in (
            ("not recording", 0, options.pairs),
            ("recording two layers", 1, options.pairs // 4),
        ):
            ratios = []
            for _ in range(max(2, pairs)):
                taken = {
                    watched: seconds(recorder if watched else None, number)
                    for watched in order.sample([True, False], 2)
                }
                ratios.append(taken[True] / taken[False])
            found = ratio_interval(ratios, 0.95, 0)
            print(
                f"{what}: {found.ratio:.4f} × a step without ({found.low:.4f} … {found.high:.4f}, {len(ratios)} pairs)"
            )
        begin = time.perf_counter()
        for _ in range(100_000):
            recorder.step(0)
        print(f"one call of recorder.step: {(time.perf_counter() - begin) * 1e4:.0f} ns")


if __name__ == "__main__":
    main()
