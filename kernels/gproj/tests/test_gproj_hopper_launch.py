"""What stands before and after the Hopper backward kernel, interpreted on a CPU; torch plays the kernel itself."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gproj.problem import GPROJ, ZEROSUM, Problem, Saved
from gproj_oracle import draw, error, exact

pytest.importorskip("cutlass")
pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the kernel plays itself")


def in_registers(tile: Tensor, order: Any, beside: Tensor | None = None) -> Tensor:
    """A tile (M, N) as warp groups store their accumulators of wgmma, four registers of a thread at a time.

    `beside` has a value per row, which every group has in the first of its further columns.
    """
    thread, register = torch.arange(128)[None, :, None], torch.arange(4)[None, None, :]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register // 2)
    column = thread % 4 * 2 + register % 2
    parts = []
    for group in range(order.groups):
        for block in range(order.blocks_m):
            first = (block * order.groups + group if order.along_m else block) * 64
            for brick in range(order.bricks):
                start = (brick if order.along_m else group * order.bricks + brick) * 8
                parts.append(tile[first + row, start + column].flatten())
            if beside is not None:
                parts.append((beside[first + row] * (column == 0)).flatten())
    return torch.cat(parts)


def by_registers(rows: Tensor) -> Tensor:
    """Columns as the forward kernel stores them: of 32, the two of each eight that one thread of four holds."""
    return rows.unflatten(-1, (-1, 4, 4, 2)).transpose(-2, -3).flatten(-4)


def played(kernel: Any, ordered: bool) -> Callable[..., None]:
    """The backward kernel in float32, which rounds dS and leaves its row sums, one too large."""
    from gproj.hopper import compiled
    from gproj.hopper.register_order import Accumulators

    tiles, head_dim = compiled.backward_tiles(kernel), kernel.head_dim
    of_dq, of_dkv = Accumulators.of_dq(tiles, head_dim, 8 if ordered else 0), Accumulators.of_dkv(tiles, head_dim)

    def run(
        q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse_log2: Tensor, d: Tensor, dq_sum: Tensor, *rest: Any
    ) -> None:
        dk, dv, scale, row_sums = rest[0], rest[1], rest[2], rest[9]
        assert not dq_sum.any()
        q, k, v, do = (x.transpose(1, 2).float() for x in (q, k, v, do))
        batch, heads, seq, _ = q.shape
        k, v = (x.repeat_interleave(kernel.group, 1) for x in (k, v))
        hidden = torch.ones(seq, k.shape[2], dtype=torch.bool).triu(k.shape[2] - seq + 1) & kernel.causal
        p = torch.exp2(q @ k.mT * scale * math.log2(math.e) - lse_log2[:, :, :seq, None]).masked_fill(hidden, 0.0)
        ds = (p * (do @ v.mT - d[:, :, :seq, None])).half().float()
        for b in range(batch):
            for h in range(heads):
                pad = (0, 0, 0, lse_log2.shape[2] - seq)
                dq = torch.nn.functional.pad(ds[b, h] @ k[b, h], pad).split(tiles.m_block_size)
                r = torch.nn.functional.pad(ds[b, h].sum(1) + 1, pad[2:]).split(tiles.m_block_size)
                if ordered:
                    assert row_sums.shape == (batch, heads, len(dq), 1)
                    stored = [in_registers(x, of_dq, sums) for x, sums in zip(dq, r, strict=True)]
                else:
                    row_sums[b, h] += torch.cat(r)
                    stored = [in_registers(x, of_dq) for x in dq]
                dq_sum[b, h] += torch.cat(stored)
                for into, x in ((dk, ds[b, h].mT @ q[b, h]), (dv, p[b, h].mT @ do[b, h])):
                    if kernel.group == 1:
                        into[b, :, h] = x * (scale if into is dk else 1.0)
                        continue
                    blocks = torch.nn.functional.pad(x, (0, 0, 0, -len(x) % tiles.n_block_size)).split(
                        tiles.n_block_size
                    )
                    blocks = [block.mT if of_dkv.swapped else block for block in blocks]
                    into[b, h // kernel.group] += torch.cat([in_registers(block, of_dkv) for block in blocks])

    return run


@pytest.mark.parametrize(
    ("head_dim", "method", "kv_heads", "ordered"),
    [
        (64, ZEROSUM, 2, False),
        (64, GPROJ, 1, True),
        (96, ZEROSUM, 1, True),
        (96, GPROJ, 1, False),
        (128, ZEROSUM, 1, True),
        (128, GPROJ, 1, False),
        (192, ZEROSUM, 1, False),
        (192, GPROJ, 2, True),
        (256, ZEROSUM, 1, False),
        (256, GPROJ, 2, False),
    ],
)
def test_before_and_after(
    monkeypatch: pytest.MonkeyPatch, head_dim: int, method: str, kv_heads: int, ordered: bool
) -> None:
    from gproj.hopper import launch

    monkeypatch.setattr(launch.compiled, "backward", lambda kernel, chosen: played(kernel, chosen.beside > 0))
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    # float16: the interpreter truncates to bfloat16.
    leaves, grad = draw(1, 2, kv_heads, 70, 110, head_dim, torch.float16)
    leaves[1] = (leaves[1] + 20).detach().requires_grad_()
    scale = head_dim**-0.5
    wanted = exact(leaves, grad, True, scale)
    q, k, v = (x.detach() for x in leaves)
    wide = k.float().repeat_interleave(2 // kv_heads, 1)
    hidden = torch.ones(70, 110, dtype=torch.bool).triu(110 - 70 + 1)
    scores = (q.float() @ wide.mT * scale).masked_fill(hidden, -torch.inf)
    p, strongest = scores.softmax(-1), scores.argmax(-1)
    o = wanted[0].half()
    anchors, word = wide.gather(2, strongest[..., None].expand(-1, -1, -1, head_dim)), strongest.int()
    if method == ZEROSUM:
        # The second key differs in bit 3, and has a share of (1 - 21 / 63) / 2.
        bit = strongest >> 3 & 1
        second = (strongest + 8 - 16 * bit).clamp(0, 109)
        others = wide.gather(2, second[..., None].expand(-1, -1, -1, head_dim))
        anchors, beside = 2 / 3 * anchors + 1 / 3 * others, wanted[0].float() - o.float()
        word = (strongest | 3 << 29 | bit << 28 | 21 << 22).int()
    else:
        beside = p @ wide - anchors
        anchors = p @ wide
    saved = Saved(o, scores.logsumexp(-1), by_registers(beside.half()).contiguous(), word)
    wanted[1] = wanted[1] - scale * anchors
    got = launch.backward(grad, q, k, v, saved, Problem(method, True, scale, ordered, None, None, 70, 110))
    for name, mine, theirs in zip(("dq", "dk", "dv"), got, wanted[1:], strict=True):
        # Without O's residual D, and so dk, is what it was.
        assert error(mine, theirs) < (0.01 if name == "dk" and method == GPROJ else 0.001), name
