"""GProj, the published method: dQ computed from the rounded dS is projected back onto zero row sums along P."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gproj.arguments import checked_scale
from gproj.tiles import LOG2E, exponentials, group_heads, masked_scores, nonzero, rounded, row_tiles


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, softmax_scale: float | None = None) -> Tensor:
    """Softmax attention, differentiable once, with the row sums of dS restored in dQ.

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
    o: Tensor = _Projected.apply(q, k, v, causal, scale)
    return o


def project_to_zero_row_sum(dq: Tensor, ds: Tensor, p: Tensor, k: Tensor) -> Tensor:
    """dQ − r·(P·K), r the row sum of the rounded dS: the error r_i·c that a common offset c of the keys leaks into dQ.

    P is rounded as well, so its rows are divided by their own sum: the correction's weights must sum to one.
    """
    row_sum = ds.sum(-1, keepdim=True)
    return dq - row_sum * (p @ k) / nonzero(p.sum(-1, keepdim=True))


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            queries = group_heads(q, k.shape[1])
            keys, values = group_heads(k, k.shape[1]), group_heads(v, k.shape[1])
            o = torch.zeros_like(queries)
            lse = queries.new_zeros(*queries.shape[:-1], 1)
            for tile in row_tiles(q.shape[2], k.shape[2], causal, q.device):
                scores = masked_scores(queries[..., tile.rows, :], keys[..., tile.keys, :], tile.hidden)
                top = scores.amax(-1, keepdim=True)
                top = torch.where(top == -math.inf, 0.0, top)
                p = exponentials(scores, scale, top * (scale * LOG2E))
                total = nonzero(p.sum(-1, keepdim=True))
                o[..., tile.rows, :] = rounded(p, q.dtype) @ values[..., tile.keys, :] / total
                lse[..., tile.rows, :] = top * scale + total.log()
        result = o.reshape(q.shape).to(q.dtype)
        ctx.save_for_backward(q, k, v, result, lse)
        ctx.causal, ctx.scale = causal, scale
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        with torch.autocast(q.device.type, enabled=False):
            queries, do = group_heads(q, k.shape[1]), group_heads(grad, k.shape[1])
            keys, values = group_heads(k, k.shape[1]), group_heads(v, k.shape[1])
            d = (do * group_heads(o, k.shape[1])).sum(-1, keepdim=True)
            dq, dk, dv = torch.zeros_like(queries), torch.zeros_like(keys), torch.zeros_like(values)
            for tile in row_tiles(q.shape[2], k.shape[2], ctx.causal, q.device):
                q_rows, do_rows = queries[..., tile.rows, :], do[..., tile.rows, :]
                k_seen, v_seen = keys[..., tile.keys, :], values[..., tile.keys, :]
                scores = masked_scores(q_rows, k_seen, tile.hidden)
                p = exponentials(scores, ctx.scale, lse[..., tile.rows, :] * LOG2E)
                ds = rounded(p * (do_rows @ v_seen.mT - d[..., tile.rows, :]), q.dtype)
                p = rounded(p, q.dtype)
                dq_rows = ds @ k_seen
                dq_rows = project_to_zero_row_sum(dq_rows, ds, p, k_seen)
                dq[..., tile.rows, :] = dq_rows * ctx.scale
                dk[..., tile.keys, :] += (ds.mT @ q_rows).sum(2, keepdim=True) * ctx.scale
                dv[..., tile.keys, :] += (p.mT @ do_rows).sum(2, keepdim=True)
        return dq.reshape(q.shape).to(q.dtype), dk.squeeze(2).to(k.dtype), dv.squeeze(2).to(v.dtype), None, None
