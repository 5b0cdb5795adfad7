"""GProj, the published method: dQ computed from the rounded dS is projected back onto zero row sums along P.

The method changes the backward alone; its forward is that of `unfused.py`. It does not touch dK, which the wrong D of
BF16 kernels damages as well: `consistent_d` is this project's own addition, and makes the method "gproj-dk".
"""

import torch
from torch import Tensor

from gproj.tiles import LOG2E, exponentials, group_heads, masked_scores, nonzero, rounded, row_tiles


def project_to_zero_row_sum(dq: Tensor, ds: Tensor, p: Tensor, k: Tensor) -> Tensor:
    """dQ − r·(P·K), r the row sum of the rounded dS: the error r_i·c that a common offset c of the keys leaks into dQ.

    P is rounded as well, so its rows are divided by their own sum: the correction's weights must sum to one.
    """
    row_sum = ds.sum(-1, keepdim=True)
    return dq - row_sum * (p @ k) / nonzero(p.sum(-1, keepdim=True))


def consistent_d(d: Tensor, ds: Tensor) -> Tensor:
    """The D of which the rows of dS sum to zero: D + Σ_j P_ij (dP_ij − D_i), of the dS that is not rounded yet.

    D from a rounded O does not fit the P and dP of the backward pass. P sums to one there, so the row sum of dS is what
    D lacks. A kernel that has been through a row knows it; dK and dV must then come after dQ.
    """
    return d + ds.sum(-1, keepdim=True)


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
    repair_dk: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of the inputs' dtype; `repair_dk` forms dk with `consistent_d`."""
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
        dp, d_rows = do_rows @ v_seen.mT, d[..., tile.rows, :]
        if repair_dk:
            ds_of_dk = rounded(p * (dp - consistent_d(d_rows, p * (dp - d_rows))), q.dtype)
        ds = rounded(p * (dp - d_rows), q.dtype)
        p = rounded(p, q.dtype)
        dq_rows = ds @ k_seen
        dq_rows = project_to_zero_row_sum(dq_rows, ds, p, k_seen)
        dq[..., tile.rows, :] = dq_rows * scale
        dk[..., tile.keys, :] += ((ds_of_dk if repair_dk else ds).mT @ q_rows).sum(2, keepdim=True) * scale
        dv[..., tile.keys, :] += (p.mT @ do_rows).sum(2, keepdim=True)
    return dq.reshape(q.shape).to(q.dtype), dk.squeeze(2).to(k.dtype), dv.squeeze(2).to(v.dtype)
