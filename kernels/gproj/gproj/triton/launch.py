"""Launches of the three kernels: strides, grids and tile sizes."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gproj.problem import GPROJ_DK, PROJECTING, ZEROSUM, Gradients, Problem, Saved
from gproj.triton.backward_dkdv import backward_dkdv_kernel
from gproj.triton.backward_dq import backward_dq_kernel
from gproj.triton.forward import forward_kernel
from gproj.triton.support import keeps_rows
from gproj.triton.tilings import DKDV, DQ, FORWARD, Tiling, block_of, tiling

LOG2E = math.log2(math.e)


def forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Saved:
    """O and what the backward needs. Tensors are (batch, heads, seq, head_dim), or packed (total, heads, head_dim)."""
    kept = keeps_rows(problem.method)
    batch, heads, kv_heads, rows = _sizes(q, k, problem)
    o = _result(q, problem)
    lse = q.new_empty(rows, dtype=torch.float32)
    residual = _result(q, problem) if kept else q.new_empty(0)
    strongest = q.new_empty(rows if kept else 0, dtype=torch.int32)
    saved = Saved(o, lse, residual, strongest)
    tile = tiling(FORWARD, problem.method, q.shape[-1], q.device)
    blocks = -(-problem.max_seqlen_q // tile.block_m)
    if q.numel() == 0:
        return saved
    with _on(q.device):
        forward_kernel[(batch * heads * blocks,)](
            q,
            k,
            v,
            o,
            residual,
            lse,
            strongest,
            problem.cu_seqlens_q,
            problem.cu_seqlens_k,
            _strides(q),
            _strides(k),
            _strides(v),
            _strides(o),
            _statistics_strides(lse),
            heads,
            heads // kv_heads,
            problem.max_seqlen_q,
            problem.max_seqlen_k,
            blocks,
            problem.scale,
            problem.scale * LOG2E,
            ZEROSUM=problem.method == ZEROSUM,
            CAUSAL=problem.causal,
            **_settings(tile, problem, q, k, v, o),
        )
    return saved


def backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Saved, problem: Problem) -> Gradients:
    """dQ first: it also writes D, which the kernel of dK and dV reads."""
    if q.numel() == 0 or k.numel() == 0:
        return Gradients(torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v))
    with _on(q.device):
        dq, d = backward_dq(grad, q, k, v, saved, problem)
        return Gradients(dq, *backward_dkdv(grad, q, k, v, saved, d, problem))


def backward_dq(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Saved, problem: Problem) -> tuple[Tensor, Tensor]:
    """dQ, and D shaped like the log-sum-exp."""
    batch, heads, kv_heads, rows = _sizes(q, k, problem)
    dq, d = _result(q, problem), q.new_empty(rows, dtype=torch.float32)
    tile = tiling(DQ, problem.method, q.shape[-1], q.device)
    blocks = -(-problem.max_seqlen_q // tile.block_m)
    backward_dq_kernel[(batch * heads * blocks,)](
        q,
        k,
        v,
        saved.o,
        saved.beside_o,
        grad,
        saved.lse,
        saved.strongest,
        d,
        dq,
        problem.cu_seqlens_q,
        problem.cu_seqlens_k,
        _strides(q),
        _strides(k),
        _strides(v),
        _strides(saved.o),
        _strides(saved.beside_o) if keeps_rows(problem.method) else (0, 0, 0, 0),
        _strides(grad),
        _strides(dq),
        _statistics_strides(saved.lse),
        heads,
        heads // kv_heads,
        problem.max_seqlen_q,
        problem.max_seqlen_k,
        blocks,
        problem.scale,
        problem.scale * LOG2E,
        GPROJ=problem.method in PROJECTING,
        REPAIR_DK=problem.method == GPROJ_DK,
        ZEROSUM=problem.method == ZEROSUM,
        CAUSAL=problem.causal,
        **_settings(tile, problem, q, k, v, saved.o, grad, dq),
    )
    return dq, d


def backward_dkdv(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Saved, d: Tensor, problem: Problem
) -> tuple[Tensor, Tensor]:
    """dK and dV, with the D that `backward_dq` wrote."""
    batch, heads, kv_heads, _ = _sizes(q, k, problem)
    dk, dv = _result(k, problem), _result(v, problem)
    tile = tiling(DKDV, problem.method, q.shape[-1], q.device)
    blocks = -(-problem.max_seqlen_k // tile.block_n)
    backward_dkdv_kernel[(batch * kv_heads * blocks,)](
        q,
        k,
        v,
        grad,
        saved.lse,
        d,
        dk,
        dv,
        problem.cu_seqlens_q,
        problem.cu_seqlens_k,
        _strides(q),
        _strides(k),
        _strides(v),
        _strides(grad),
        _strides(dk),
        _strides(dv),
        _statistics_strides(saved.lse),
        kv_heads,
        heads // kv_heads,
        problem.max_seqlen_q,
        problem.max_seqlen_k,
        blocks,
        problem.scale,
        problem.scale * LOG2E,
        CAUSAL=problem.causal,
        **_settings(tile, problem, q, k, v, grad, dk, dv),
    )
    return dk, dv


def _result(like: Tensor, problem: Problem) -> Tensor:
    """An output; zeros where packed, since rows beyond the last sequence are written by nobody."""
    return torch.empty_like(like) if problem.cu_seqlens_q is None else torch.zeros_like(like)


def _sizes(q: Tensor, k: Tensor, problem: Problem) -> tuple[int, int, int, tuple[int, ...]]:
    """Sequences, query heads, key heads, and the shape of what is kept per row."""
    if problem.cu_seqlens_q is None:
        return q.shape[0], q.shape[1], k.shape[1], tuple(q.shape[:3])
    return problem.cu_seqlens_q.shape[0] - 1, q.shape[1], k.shape[1], (q.shape[1], q.shape[0])


def _strides(x: Tensor) -> tuple[int, ...]:
    """(batch, head, row, column) in elements; packed sequences have one batch, whose rows start at cu_seqlens."""
    strides = x.stride()
    return strides if x.dim() == 4 else (0, strides[1], strides[0], strides[2])


def _statistics_strides(x: Tensor) -> tuple[int, int]:
    """(batch, head) of what is kept per row; rows are contiguous."""
    return (x.stride(0), x.stride(1)) if x.dim() == 3 else (0, x.stride(0))


def _settings(tile: Tiling, problem: Problem, *tensors: Tensor) -> dict[str, Any]:
    head_dim = tensors[0].shape[-1]
    farthest = max(abs(stride) for x in tensors for stride in _strides(x)[2:])
    block = block_of(head_dim)
    return {
        "VARLEN": problem.cu_seqlens_q is not None,
        "WIDE": farthest * (max(tile.block_m, tile.block_n) + block) >= 2**31,
        "HEAD_DIM": head_dim,
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_D": block,
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
        # The exponent's product must be rounded before the maximum is subtracted; nothing else gains by contraction.
        "enable_fp_fusion": False,
    }


def _on(device: torch.device) -> AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
