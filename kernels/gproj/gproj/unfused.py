"""The known repair alone, in plain PyTorch: what GProj's forward is too, and what its backward is measured against."""

import math

import torch
from torch import Tensor

from gproj.tiles import LOG2E, exponentials, group_heads, masked_scores, nonzero, rounded, row_tiles


def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """O, (batch, heads, seq_q, head_dim) of q's dtype, and float32 log-sum-exp, (batch, heads, seq_q)."""
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
    return o.reshape(q.shape).to(q.dtype), lse.reshape(q.shape[:3])


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of the inputs' dtype, as FlashAttention-2 forms them."""
    queries, do = group_heads(q, k.shape[1]), group_heads(grad, k.shape[1])
    keys, values = group_heads(k, k.shape[1]), group_heads(v, k.shape[1])
    lse = lse.reshape(*queries.shape[:-1], 1)
    d = (do * group_heads(o, k.shape[1])).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(queries), torch.zeros_like(keys), torch.zeros_like(values)
    for tile in row_tiles(q.shape[2], k.shape[2], causal, q.device):
        q_rows, do_rows = queries[..., tile.rows, :], do[..., tile.rows, :]
        k_seen, v_seen = keys[..., tile.keys, :], values[..., tile.keys, :]
        scores = masked_scores(q_rows, k_seen, tile.hidden)
        p = exponentials(scores, scale, lse[..., tile.rows, :] * LOG2E)
        ds = rounded(p * (do_rows @ v_seen.mT - d[..., tile.rows, :]), q.dtype)
        p = rounded(p, q.dtype)
        dq[..., tile.rows, :] = ds @ k_seen * scale
        dk[..., tile.keys, :] += (ds.mT @ q_rows).sum(2, keepdim=True) * scale
        dv[..., tile.keys, :] += (p.mT @ do_rows).sum(2, keepdim=True)
    return dq.reshape(q.shape).to(q.dtype), dk.squeeze(2).to(k.dtype), dv.squeeze(2).to(v.dtype)
