"""Measure candidate tile sizes of the Triton kernels on this GPU, and the whole passes against FlashAttention-2.

    python benchmarks/tilings.py              # in kernels/gproj; about two minutes
    python benchmarks/tilings.py --compare    # only the comparison with the table as it is
    python benchmarks/tilings.py --head-dims 256 --seconds 300

Prints, per kernel, method and head_dim, the fastest candidates as lines of `gproj/triton/tilings.py`. Needs torch and
Triton alone. Candidates are compiled in parallel processes first, so what is timed is warm.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from unittest import mock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton.runtime.errors import OutOfResources
from triton.testing import do_bench

from gproj import attention
from gproj.problem import GPROJ, GPROJ_DK, METHODS, UNFUSED, ZEROSUM, Problem
from gproj.triton import launch
from gproj.triton.tilings import DKDV, DQ, FORWARD, Tiling

SHAPES = ((4, 16, 4096, 128), (4, 16, 4096, 64), (8, 16, 2048, 64))
SEARCHED = {64: (4, 16, 4096, 64), 128: (4, 16, 4096, 128), 256: (4, 8, 4096, 256)}
# Methods that share a kernel are timed once.
VARIANTS = ((FORWARD, UNFUSED), (FORWARD, ZEROSUM), (DQ, GPROJ), (DQ, GPROJ_DK), (DQ, ZEROSUM), (DKDV, GPROJ))
CANDIDATES = {
    FORWARD: [
        *(Tiling(128, 64, warps, stages) for warps, stages in ((4, 2), (4, 3), (8, 2), (8, 3), (8, 4))),
        *(Tiling(128, 128, warps, stages) for warps, stages in ((8, 2), (8, 3))),
        *(Tiling(64, 64, 4, stages) for stages in (2, 3, 4)),
        Tiling(64, 128, 4, 2),
        Tiling(128, 32, 4, 4),
    ],
    DQ: [
        *(Tiling(128, 64, 8, stages) for stages in (1, 2, 3)),
        *(Tiling(64, 64, 4, stages) for stages in (1, 2, 3)),
        *(Tiling(128, 32, warps, stages) for warps, stages in ((4, 2), (8, 2), (8, 3))),
        *(Tiling(64, 32, 4, stages) for stages in (2, 3, 4)),
        *(Tiling(64, 128, warps, stages) for warps, stages in ((4, 1), (4, 2), (8, 2))),
        Tiling(128, 128, 8, 1),
        Tiling(128, 64, 4, 2),
    ],
    DKDV: [
        *(Tiling(64, 128, 8, stages) for stages in (1, 2, 3)),
        *(Tiling(64, 64, 4, stages) for stages in (1, 2, 3)),
        *(Tiling(32, 128, warps, stages) for warps, stages in ((4, 2), (8, 2), (8, 3), (8, 4))),
        *(Tiling(32, 64, 4, stages) for stages in (2, 3, 4)),
        *(Tiling(128, 64, warps, stages) for warps, stages in ((4, 2), (8, 2))),
        Tiling(128, 128, 8, 1),
        Tiling(64, 128, 4, 2),
    ],
}


def measured(kernel: str, method: str, head_dim: int, candidate: Tiling, milliseconds: int) -> float | None:
    """Median time of one kernel with one tiling, None where the device does not hold it."""
    batch, heads, seq, _ = SEARCHED[head_dim]
    torch.manual_seed(0)
    q, k, v, grad = torch.randn(4, batch, heads, seq, head_dim, device="cuda", dtype=torch.bfloat16)
    problem = Problem(method, True, head_dim**-0.5, True, None, None, seq, seq)
    saved = launch.forward(q, k, v, problem)
    _, d = launch.backward_dq(grad, q, k, v, saved, problem)
    passes: dict[str, Callable[[], object]] = {
        FORWARD: lambda: launch.forward(q, k, v, problem),
        DQ: lambda: launch.backward_dq(grad, q, k, v, saved, problem),
        DKDV: lambda: launch.backward_dkdv(grad, q, k, v, saved, d, problem),
    }
    with mock.patch.object(launch, "tiling", return_value=candidate):
        try:
            passes[kernel]()
            torch.cuda.synchronize()
        except (OutOfResources, RuntimeError) as error:
            print(f"  {candidate}: {type(error).__name__} {str(error).splitlines()[0][:80]}", file=sys.stderr)
            return None
        return float(do_bench(passes[kernel], warmup=milliseconds // 4, rep=milliseconds, return_mode="median"))


def _compile(job: tuple[str, str, int, Tiling]) -> None:
    measured(*job, milliseconds=0)


def sweep(head_dims: list[int], seconds: float) -> None:
    """Time every candidate; stop when `seconds` have gone."""
    start = time.monotonic()
    jobs = [
        (kernel, method, head_dim, candidate)
        for (kernel, method), head_dim in product(VARIANTS, head_dims)
        for candidate in CANDIDATES[kernel]
    ]
    with ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_compile, jobs))
    print(f"compiled {len(jobs)} candidates in {time.monotonic() - start:.0f} s")
    for (kernel, method), head_dim in product(VARIANTS, head_dims):
        results = []
        for candidate in CANDIDATES[kernel]:
            if time.monotonic() - start > seconds:
                print("stopped: the time is used up")
                return
            took = measured(kernel, method, head_dim, candidate, milliseconds=60)
            if took is not None:
                results.append((took, candidate))
        print(f"{kernel} {method} head_dim {head_dim}")
        for took, candidate in sorted(results, key=lambda result: result[0])[:4]:
            print(f"  {took:.3f} ms  {candidate}", flush=True)


def compare() -> None:
    """Forward and backward of every method and of FlashAttention-2 in ms, causal, BF16."""
    print("shape, backend: forward ms, backward ms (backward over sdpa-flash)")
    for batch, heads, seq, head_dim in SHAPES:
        leaves = [
            torch.randn(batch, heads, seq, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        ]
        grad = torch.randn_like(leaves[0])
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            base = _passes(lambda x=leaves: scaled_dot_product_attention(*x, is_causal=True), leaves, grad)
        print(f"{batch}x{heads}x{seq}x{head_dim} sdpa-flash: {base[0]:.3f}, {base[1]:.3f}")
        for method in METHODS:
            ours = _passes(
                lambda x=leaves, m=method: attention(*x, causal=True, method=m, backend="triton"), leaves, grad
            )
            print(f"  {method}: {ours[0]:.3f}, {ours[1]:.3f} ({ours[1] / base[1]:.2f})", flush=True)


def _passes(call: Callable[[], torch.Tensor], leaves: list[torch.Tensor], grad: torch.Tensor) -> tuple[float, float]:
    o = call()
    forward = do_bench(call, warmup=20, rep=100, return_mode="median")
    backward = do_bench(
        lambda: torch.autograd.grad(o, leaves, grad, retain_graph=True), warmup=20, rep=100, return_mode="median"
    )
    return float(forward), float(backward)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compare", action="store_true", help="only the comparison with FlashAttention-2")
    parser.add_argument("--head-dims", type=int, nargs="+", choices=list(SEARCHED), default=[128, 64])
    parser.add_argument("--seconds", type=float, default=120.0, help="stop the search after this time")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no CUDA device: there is nothing to measure here")
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    if not arguments.compare:
        sweep(arguments.head_dims, arguments.seconds)
    compare()
