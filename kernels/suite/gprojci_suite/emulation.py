"""Attention that rounds to the 16-bit input type exactly where Hopper kernels do; used by the emulated peers."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

ROWS = 256  # query rows at a time: bounds the memory of the score matrix
LOG2E = math.log2(math.e)


@dataclass(frozen=True)
class Rounding:
    """What one kernel does at the points where kernels differ."""

    unfused: bool
    """Round the product of the exponent before the maximum is subtracted (the known repair)."""
    zero_sum_forward: bool = False
    """Normalise O by the sum of the rounded P, and form D from O + O_lo."""
    projection: Literal["none", "probabilities", "strongest key"] = "none"
    """What carries the row sum of the rounded dS that is taken out of dQ."""


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float, rounding: Rounding) -> Tensor:
    """Differentiable attention of q (batch, heads, seq_q, head_dim) over k, v (batch, kv_heads, seq_k, head_dim)."""
    result: Tensor = _Emulated.apply(q, k, v, causal, softmax_scale, rounding)
    return result


def _exponentials(scores: Tensor, scale: float, subtrahend: Tensor, unfused: bool) -> Tensor:
    """exp2(scores · scale·log2e − subtrahend), with one rounding (a fused multiply-add) or two."""
    factor = torch.tensor(scale * LOG2E, dtype=torch.float32, device=scores.device)
    if unfused:
        return torch.exp2(scores * factor - subtrahend)
    return torch.exp2((scores.double() * factor.double() - subtrahend.double()).float())


def _tiles(seq_q: int, seq_k: int, causal: bool, device: torch.device) -> list[tuple[slice, int, Tensor | None]]:
    """(rows, visible keys, mask of hidden keys or None) for every block of rows."""
    result: list[tuple[slice, int, Tensor | None]] = []
    for start in range(0, seq_q, ROWS):
        stop = min(start + ROWS, seq_q)
        if not causal:
            result.append((slice(start, stop), seq_k, None))
            continue
        last = torch.arange(start, stop, device=device) + (seq_k - seq_q)
        keys = max(0, min(seq_k, stop + seq_k - seq_q))
        result.append((slice(start, stop), keys, torch.arange(keys, device=device) > last[:, None]))
    return result


class _Emulated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, rounding: Rounding) -> Tensor:
        batch, heads, seq_q, head_dim = q.shape
        kv_heads, seq_k = k.shape[1], k.shape[2]
        group = heads // kv_heads
        queries = q.float().view(batch, kv_heads, group, seq_q, head_dim)
        keys, values = k.float(), v.float()
        o32 = torch.zeros(batch, kv_heads, group, seq_q, head_dim, device=q.device)
        lse = torch.full((batch, kv_heads, group, seq_q, 1), -math.inf, device=q.device)
        for rows, count, hidden in _tiles(seq_q, seq_k, causal, q.device):
            if count == 0:
                continue
            scores = queries[:, :, :, rows] @ keys[:, :, None, :count].mT
            if hidden is not None:
                scores = scores.masked_fill(hidden, -math.inf)
            top = scores.amax(-1, keepdim=True)
            top = torch.where(top == -math.inf, 0.0, top)
            p = _exponentials(scores, scale, top * (scale * LOG2E), rounding.unfused)
            total = p.sum(-1, keepdim=True)
            p_rounded = p.to(q.dtype).float()
            divisor = p_rounded.sum(-1, keepdim=True) if rounding.zero_sum_forward else total
            o32[:, :, :, rows] = p_rounded @ values[:, :, None, :count] / torch.where(divisor == 0, 1.0, divisor)
            lse[:, :, :, rows] = top * scale + total.log()
        o = o32.to(q.dtype)
        # D sees O as stored, plus the residual of its rounding where the forward pass keeps it.
        d_operand = o.float() + (o32 - o.float()).to(q.dtype).float() if rounding.zero_sum_forward else o.float()
        ctx.save_for_backward(q, k, v, d_operand, lse)
        ctx.settings = causal, scale, rounding
        return o.view(batch, heads, seq_q, head_dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, d_operand, lse = ctx.saved_tensors
        causal, scale, rounding = ctx.settings
        batch, heads, seq_q, head_dim = q.shape
        kv_heads, seq_k = k.shape[1], k.shape[2]
        shape = (batch, kv_heads, heads // kv_heads, seq_q, head_dim)
        queries, do = q.float().view(shape), grad.float().reshape(shape)
        keys, values = k.float(), v.float()
        d = (do * d_operand).sum(-1, keepdim=True)
        subtrahend = torch.where(lse == -math.inf, 0.0, lse) * LOG2E
        dq = torch.zeros(shape, device=q.device)
        dk, dv = torch.zeros_like(keys), torch.zeros_like(values)
        for rows, count, hidden in _tiles(seq_q, seq_k, causal, q.device):
            if count == 0:
                continue
            keys_seen, values_seen = keys[:, :, None, :count], values[:, :, None, :count]
            q_rows, do_rows = queries[:, :, :, rows], do[:, :, :, rows]
            scores = q_rows @ keys_seen.mT
            if hidden is not None:
                scores = scores.masked_fill(hidden, -math.inf)
            p = _exponentials(scores, scale, subtrahend[:, :, :, rows], rounding.unfused)
            p_rounded = p.to(q.dtype).float()
            ds = (p * (do_rows @ values_seen.mT - d[:, :, :, rows])).to(q.dtype).float()
            product = ds @ keys_seen
            if rounding.projection == "probabilities":
                # The rounded P does not sum to one: without its own sum the correction would leak the offset again.
                weight = p_rounded.sum(-1, keepdim=True)
                mean = p_rounded @ keys_seen / torch.where(weight == 0, 1.0, weight)
                product -= ds.sum(-1, keepdim=True) * mean
            elif rounding.projection == "strongest key":
                strongest = scores.argmax(-1, keepdim=True).expand(*scores.shape[:-1], head_dim)
                anchor = keys_seen.expand(*shape[:3], count, head_dim).gather(3, strongest)
                product -= ds.sum(-1, keepdim=True) * anchor
            dq[:, :, :, rows] = product * scale
            dk[:, :, :count] += (ds.flatten(2, 3).mT @ q_rows.flatten(2, 3)) * scale
            dv[:, :, :count] += p_rounded.flatten(2, 3).mT @ do_rows.flatten(2, 3)
        return dq.view(q.shape).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None
