"""What each part of the Hopper kernels costs: every variant's kernel times beside FlashAttention-4's, one GPU session.

    python benchmarks/hopper_parts.py [--rounds 20] [--head-dims 96 192 256]

Variants leave one part out; their results are wrong where the part is needed, their times are what it costs. Times are
medians of the GPU's own kernel durations (torch.profiler), variants in random order in every round, L2 flushed between.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import cutlass.cute as cute
import torch
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd
from torch.profiler import ProfilerActivity, profile

from gproj.hopper import launch
from gproj.hopper.deterministic_backward import BesideBackwardSm90
from gproj.hopper.projected_forward import ProjectedForwardSm90
from gproj.hopper.row_sum_backward import RowSumBackwardSm90
from gproj.hopper.support import ORDERED_HEAD_DIMS
from gproj.hopper.zero_sum_forward import ZeroSumForwardSm90
from gproj.problem import GPROJ, ZEROSUM, Problem

SHAPES = {
    64: ((4, 16, 4096, 64), (8, 16, 2048, 64)),
    96: ((4, 16, 4096, 96),),
    128: ((4, 16, 4096, 128),),
    192: ((4, 8, 4096, 192),),
    256: ((4, 8, 4096, 256),),
}
OTHER_TILES: dict[tuple[str, int], tuple[tuple[int, int], ...]] = {
    (GPROJ, 64): ((192, 80), (128, 112)),
    (GPROJ, 128): ((128, 80), (128, 64)),
    (GPROJ, 96): ((128, 112),),
    (ZEROSUM, 96): ((192, 80), (128, 128)),
    (ZEROSUM, 192): ((128, 96),),
    (ZEROSUM, 256): ((128, 64),),
}
"""Of the forward, by method and head_dim: queries of a tile, keys of a block."""


class NoResidualForward(ZeroSumForwardSm90):
    """Without the store of O's residual."""

    def _store_row(self, *args: Any) -> None:
        pass


class NoRowSumBackward(RowSumBackwardSm90):
    """Without the row sums of dS: FlashAttention-4's own loop."""

    def _get_shared_storage_cls(self) -> Any:
        return FlashAttentionBackwardSm90._get_shared_storage_cls(self)

    def mma(self, *args: Any, is_dQ_wg: bool = True) -> None:
        FlashAttentionBackwardSm90.mma(self, *args, is_dQ_wg=is_dQ_wg)

    def mma_one_m_block(self, *args: Any, **kwargs: Any) -> Any:
        return FlashAttentionBackwardSm90.mma_one_m_block(self, *args, **kwargs)


class NotStoredBackward(RowSumBackwardSm90):
    """The row sums are computed and thrown away."""

    def _add_row_sums(self, rows: cute.Tensor, wide: cute.Tensor) -> None:
        pass


def tiled(of_method: Any, tiles: tuple[int, int]) -> Any:
    """The forward of a method with other tiles."""
    return type(f"{of_method.__name__}{tiles[0]}x{tiles[1]}", (of_method,), {"tiles": staticmethod(lambda *_: tiles)})


def variants(shape: tuple[int, int, int, int]) -> dict[str, Callable[[], None]]:
    """What to run, by name."""
    batch, heads, seq, head_dim = shape
    q, k, v, do = (
        torch.randn(batch, seq, heads, head_dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(4)
    )
    found: dict[str, Callable[[], None]] = {}

    def forward(method: str, chosen: Any) -> Callable[[], None]:
        problem = Problem(method, True, head_dim**-0.5, False, None, None, seq, seq)

        def run() -> None:
            launch.FORWARDS[method] = chosen
            launch.forward(q, k, v, problem)

        return run

    def backward(method: str, chosen: Any, deterministic: bool = False) -> Callable[[], None]:
        problem = Problem(method, True, head_dim**-0.5, deterministic, None, None, seq, seq)
        launch.FORWARDS |= {ZEROSUM: ZeroSumForwardSm90, GPROJ: ProjectedForwardSm90}
        saved = launch.forward(q, k, v, problem)

        def run() -> None:
            launch.BACKWARD = chosen
            launch.backward(do, q, k, v, saved, problem)

        return run

    found["forward zerosum"] = forward(ZEROSUM, ZeroSumForwardSm90)
    found["forward zerosum: no residual of O"] = forward(ZEROSUM, NoResidualForward)
    found["forward gproj"] = forward(GPROJ, ProjectedForwardSm90)
    for method, of_method in ((ZEROSUM, ZeroSumForwardSm90), (GPROJ, ProjectedForwardSm90)):
        for tiles in OTHER_TILES.get((method, head_dim), ()):
            found[f"forward {method}: {tiles[0]} x {tiles[1]}"] = forward(method, tiled(of_method, tiles))
    found["backward zerosum"] = backward(ZEROSUM, RowSumBackwardSm90)
    found["backward: no row sums"] = backward(ZEROSUM, NoRowSumBackward)
    found["backward: row sums not stored"] = backward(ZEROSUM, NotStoredBackward)
    if head_dim in ORDERED_HEAD_DIMS:
        found["backward: row sums beside dQ"] = backward(ZEROSUM, BesideBackwardSm90)
    found["backward gproj"] = backward(GPROJ, RowSumBackwardSm90)
    if head_dim in ORDERED_HEAD_DIMS:
        found["backward zerosum, deterministic"] = backward(ZEROSUM, RowSumBackwardSm90, deterministic=True)
    rows = [x.transpose(1, 2) for x in (q, k, v, do)]
    o, lse = _flash_attn_fwd(*rows[:3], causal=True, return_lse=True)[:2]
    found["FlashAttention-4 forward"] = lambda: _flash_attn_fwd(*rows[:3], causal=True, return_lse=True)
    for deterministic in (False, True) if head_dim in ORDERED_HEAD_DIMS else (False,):
        found["FlashAttention-4 backward" + ", deterministic" * deterministic] = partial(
            _flash_attn_bwd, *rows[:3], o, rows[3], lse, causal=True, deterministic=deterministic
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--head-dims", type=int, nargs="+", choices=list(SHAPES), default=[128, 64])
    arguments = parser.parse_args()
    flush = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    for shape in (shape for head_dim in arguments.head_dims for shape in SHAPES[head_dim]):
        cases = variants(shape)
        for name, run in list(cases.items()):
            try:
                run()
                torch.cuda.synchronize()
            except Exception as error:  # noqa: BLE001 (a variant that does not compile is a line of the table)
                print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
                del cases[name]
        times: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
        for _ in range(arguments.rounds):
            for name in random.sample(list(cases), len(cases)):
                flush.zero_()
                torch.cuda.synchronize()
                with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
                    cases[name]()
                    torch.cuda.synchronize()
                found: dict[str, float] = {}
                for event in trace.events():
                    if event.device_time_total > 0 and "Memset" not in event.name:
                        found[event.name[:44]] = found.get(event.name[:44], 0.0) + event.device_time_total / 1000
                times[name].append(found)
        print(f"\n{shape} causal BF16, ms: total, then by kernel")
        for name, samples in times.items():
            total = statistics.median(sum(sample.values()) for sample in samples)
            parts = {key: statistics.median(sample.get(key, 0.0) for sample in samples) for key in samples[-1]}
            print(
                f"  {name:32s} {total:7.3f}   " + "  ".join(f"{value:.3f}" for key, value in parts.items()), flush=True
            )


if __name__ == "__main__":
    main()
