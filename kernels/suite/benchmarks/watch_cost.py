"""What `watch` costs a training step: `python kernels/suite/benchmarks/watch_cost.py --device cuda`.

Trains the transformer of the training suite on random tokens with torch's own attention, watched steps and others in
turn, and prints by how much a watched step is longer, and what that is of each step at one reading in 500.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor
from torch.nn import functional

from gprojci_suite.capture import watch
from gprojci_suite.contract.training import TrainingModel, TrainingOptimizer
from gprojci_suite.training.data import VOCABULARY
from gprojci_suite.training.model import Transformer, parts
from gprojci_suite.training.optimizers import Optimizers

EVERY = 500


def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Torch's choice of its own backends."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", help="device to train on (default: cpu)")
    parser.add_argument("--pairs", type=int, default=30, help="pairs of steps (default: 30)")
    parser.add_argument("--layers", type=int, default=8, help="layers (default: 8)")
    parser.add_argument("--width", type=int, default=512, help="width, 64 per head (default: 512)")
    parser.add_argument("--sequence", type=int, default=1024, help="tokens of a sequence (default: 1024)")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step (default: 16)")
    parser.add_argument("--dk", action="store_true", help="watch dk too")
    options = parser.parse_args()
    heads = max(1, options.width // 64)
    shape = TrainingModel(options.layers, options.width, heads, options.sequence, "learned", ("q", "k", "v"))
    model = Transformer(shape).to(options.device)
    optimizers = Optimizers(model, TrainingOptimizer(None, 1e-4))
    tokens = torch.randint(VOCABULARY, (options.batch, options.sequence), device=options.device)
    watcher = watch(model, every=2, dk=options.dk)

    def seconds() -> float:
        begin = time.perf_counter()
        with torch.autocast(options.device, torch.bfloat16):
            loss = model(tokens, tokens, attend, parts(options.device, False))
        torch.autograd.backward(loss)
        optimizers.step(1)
        optimizers.zero_grad()
        if options.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    seconds()
    # A watched pass is read at the beginning of the next: both steps of a pair pay, two without follow.
    watched, plain = [], []
    for _ in range(options.pairs):
        watched.append(seconds() + seconds())
    readings = len(watcher.readings)
    watcher.close()
    for _ in range(options.pairs):
        plain.append(seconds() + seconds())
    more = statistics.median(watched) - statistics.median(plain)
    step = statistics.median(plain) / 2
    print(f"step {1e3 * step:.2f} ms; a watched one takes {1e3 * more:.2f} ms more ({readings} readings)")
    print(f"at one in {EVERY}: {more / step / EVERY:.4%} of a step")


if __name__ == "__main__":
    main()
