"""Zero-sum attention: the forward pass keeps what the backward pass needs for rows of dS that sum to zero."""

import math

import torch
from torch import Tensor

from gproj.tiles import LOG2E, exponentials, group_heads, masked_scores, nonzero, rounded, row_tiles


def subtract_anchor(dq: Tensor, ds: Tensor, strongest: Tensor, k: Tensor) -> Tensor:
    """dQ − r·K_strongest, r the row sum of the rounded dS; strongest is (..., rows, 1), each row's key."""
    row_sum = ds.sum(-1, keepdim=True)
    places = strongest.long().expand(*ds.shape[:-1], k.shape[-1])
    anchor = k.expand(*ds.shape[:-2], *k.shape[-2:]).gather(-2, places)
    return dq - row_sum * anchor


def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """O, its log-sum-exp, the residual of O's rounding and each row's strongest key.

    O is normalised by the sum of the rounded P. O and its residual are (batch, heads, seq_q, head_dim) of q's dtype,
    the others (batch, heads, seq_q), float32 and int32.
    """
    queries = group_heads(q, k.shape[1])
    keys, values = group_heads(k, k.shape[1]), group_heads(v, k.shape[1])
    o = torch.zeros_like(queries)
    lse = queries.new_zeros(*queries.shape[:-1], 1)
    strongest = torch.zeros_like(lse, dtype=torch.int32)
    for tile in row_tiles(q.shape[2], k.shape[2], causal, q.device):
        scores = masked_scores(queries[..., tile.rows, :], keys[..., tile.keys, :], tile.hidden)
        top, strongest[..., tile.rows, :] = scores.max(-1, keepdim=True)
        top = torch.where(top == -math.inf, 0.0, top)
        p = exponentials(scores, scale, top * (scale * LOG2E))
        lse[..., tile.rows, :] = top * scale + nonzero(p.sum(-1, keepdim=True)).log()
        p = rounded(p, q.dtype)
        # What multiplies V is the rounded P, so its own sum is what makes the weights sum to one.
        o[..., tile.rows, :] = p @ values[..., tile.keys, :] / nonzero(p.sum(-1, keepdim=True))
    high = o.to(q.dtype)
    residual = (o - high.float()).to(q.dtype)
    rows = q.shape[:3]
    return high.reshape(q.shape), lse.reshape(rows), residual.reshape(q.shape), strongest.reshape(rows)


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    residual: Tensor,
    strongest: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of the inputs' dtype."""
    queries, do = group_heads(q, k.shape[1]), group_heads(grad, k.shape[1])
    keys, values = group_heads(k, k.shape[1]), group_heads(v, k.shape[1])
    lse = lse.reshape(*queries.shape[:-1], 1)
    strongest = strongest.reshape(lse.shape)
    d = (do * (group_heads(o, k.shape[1]) + group_heads(residual, k.shape[1]))).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(queries), torch.zeros_like(keys), torch.zeros_like(values)
    for tile in row_tiles(q.shape[2], k.shape[2], causal, q.device):
        q_rows, do_rows = queries[..., tile.rows, :], do[..., tile.rows, :]
        k_seen, v_seen = keys[..., tile.keys, :], values[..., tile.keys, :]
        scores = masked_scores(q_rows, k_seen, tile.hidden)
        p = exponentials(scores, scale, lse[..., tile.rows, :] * LOG2E)
        ds = rounded(p * (do_rows @ v_seen.mT - d[..., tile.rows, :]), q.dtype)
        p = rounded(p, q.dtype)
        dq_rows = ds @ k_seen
        dq_rows = subtract_anchor(dq_rows, ds, strongest[..., tile.rows, :], k_seen)
        dq[..., tile.rows, :] = dq_rows * scale
        dk[..., tile.keys, :] += (ds.mT @ q_rows).sum(2, keepdim=True) * scale
        dv[..., tile.keys, :] += (p.mT @ do_rows).sum(2, keepdim=True)
    return dq.reshape(q.shape).to(q.dtype), dk.squeeze(2).to(k.dtype), dv.squeeze(2).to(v.dtype)
