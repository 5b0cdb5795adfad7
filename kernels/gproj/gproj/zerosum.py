"""Zero-sum attention: the forward pass keeps what the backward pass needs for rows of dS that sum to zero."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gproj.arguments import checked_scale
from gproj.tiles import LOG2E, exponentials, group_heads, masked_scores, nonzero, rounded, row_tiles


def zerosum_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, softmax_scale: float | None = None
) -> Tensor:
    """Softmax attention, differentiable once, that breaks the zero row sum of dS nowhere; repairs dQ and dK.

    O is normalised by the sum of the rounded P, D is formed from O and the residual of its rounding, and what the
    rounding of dS leaves is taken out of dQ along the row's strongest key.

    Args:
        q: (batch, heads, seq_q, head_dim), bfloat16 or float16.
        k: (batch, kv_heads, seq_k, head_dim) of the same dtype; kv_heads divides heads.
        v: shaped like k.
        causal: mask aligned to the bottom right, so the last query sees every key.
        softmax_scale: factor of the logits; head_dim ** -0.5 when None.

    Returns:
        (batch, heads, seq_q, head_dim) of q's dtype; zeros for rows that see no key.

    Raises:
        UnsupportedInput: for any other rank, shape, dtype, device or scale.
    """
    scale = checked_scale(q, k, v, softmax_scale)
    o: Tensor = _ZeroSum.apply(q, k, v, causal, scale)
    return o


def subtract_anchor(dq: Tensor, ds: Tensor, scores: Tensor, k: Tensor) -> Tensor:
    """dQ − r·K_argmax, r the row sum of the rounded dS and K_argmax the key of the row's largest score."""
    row_sum = ds.sum(-1, keepdim=True)
    strongest = scores.argmax(-1, keepdim=True).expand(*scores.shape[:-1], k.shape[-1])
    anchor = k.expand(*scores.shape[:-2], *k.shape[-2:]).gather(-2, strongest)
    return dq - row_sum * anchor


class _ZeroSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            queries = group_heads(q, k.shape[1])
            keys, values = group_heads(k, k.shape[1]), group_heads(v, k.shape[1])
            o32 = torch.zeros_like(queries)
            lse = queries.new_zeros(*queries.shape[:-1], 1)
            for tile in row_tiles(q.shape[2], k.shape[2], causal, q.device):
                scores = masked_scores(queries[..., tile.rows, :], keys[..., tile.keys, :], tile.hidden)
                top = scores.amax(-1, keepdim=True)
                top = torch.where(top == -math.inf, 0.0, top)
                p = exponentials(scores, scale, top * (scale * LOG2E))
                lse[..., tile.rows, :] = top * scale + nonzero(p.sum(-1, keepdim=True)).log()
                p = rounded(p, q.dtype)
                # What multiplies V is the rounded P, so its own sum is what makes the weights sum to one.
                o32[..., tile.rows, :] = p @ values[..., tile.keys, :] / nonzero(p.sum(-1, keepdim=True))
            o_high = o32.to(q.dtype)
            o_low = (o32 - o_high.float()).to(q.dtype)
        ctx.save_for_backward(q, k, v, o_high, o_low, lse)
        ctx.causal, ctx.scale = causal, scale
        return o_high.reshape(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o_high, o_low, lse = ctx.saved_tensors
        with torch.autocast(q.device.type, enabled=False):
            queries, do = group_heads(q, k.shape[1]), group_heads(grad, k.shape[1])
            keys, values = group_heads(k, k.shape[1]), group_heads(v, k.shape[1])
            d = (do * (o_high.float() + o_low.float())).sum(-1, keepdim=True)
            dq, dk, dv = torch.zeros_like(queries), torch.zeros_like(keys), torch.zeros_like(values)
            for tile in row_tiles(q.shape[2], k.shape[2], ctx.causal, q.device):
                q_rows, do_rows = queries[..., tile.rows, :], do[..., tile.rows, :]
                k_seen, v_seen = keys[..., tile.keys, :], values[..., tile.keys, :]
                scores = masked_scores(q_rows, k_seen, tile.hidden)
                p = exponentials(scores, ctx.scale, lse[..., tile.rows, :] * LOG2E)
                ds = rounded(p * (do_rows @ v_seen.mT - d[..., tile.rows, :]), q.dtype)
                p = rounded(p, q.dtype)
                dq_rows = ds @ k_seen
                dq_rows = subtract_anchor(dq_rows, ds, scores, k_seen)
                dq[..., tile.rows, :] = dq_rows * ctx.scale
                dk[..., tile.keys, :] += (ds.mT @ q_rows).sum(2, keepdim=True) * ctx.scale
                dv[..., tile.keys, :] += (p.mT @ do_rows).sum(2, keepdim=True)
        return dq.reshape(q.shape).to(q.dtype), dk.squeeze(2).to(k.dtype), dv.squeeze(2).to(v.dtype), None, None
