"""The error of dq, estimated from some of its rows: cheap enough for a training loop, and blind to nothing.

dQ_i = scale·Σ_j dS_ij K_j needs row i of q and do and all keys and values, but no other row (`reference` has the
formulas). So float64 of some rows tells how far dq is from the gradient for a small part of what all would cost,
whatever the reason: offsets of the keys, saturated rows, a wrong kernel.

A few rows may hold most of a head's gradient. So half of the rows are those whose dq is longest; the other half are
drawn from all others and stand for these, a stratified sample: each counts as often as there are rows for one of them.
"""

import math

import torch
from torch import Tensor

from gprojci_suite import reference

LONGEST = 128
DRAWN = 128


def row_error(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    dq: Tensor,
    *,
    causal: bool,
    softmax_scale: float,
    seed: int,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Estimates of (‖dq − dq64‖ ÷ ‖dq64‖, ‖dq64‖) of every head, (batch, heads) each; infinite where dq is not finite.

    Exact where there are no more than LONGEST + DRAWN rows. No random number of the run is used.

    Args:
        q: queries (batch, heads, seq_q, head_dim).
        k: keys (batch, kv_heads, seq_k, head_dim); kv_heads divides heads.
        v: values, shaped like k.
        do: gradient of o, shaped like q.
        dq: the gradient of q that the backend returned.
        causal: mask aligned to the bottom right.
        softmax_scale: factor of the logits.
        seed: of the rows that are drawn.
        mask: added to the logits, or of bool, True where they count; expands to (batch, heads, seq_q, seq_k).
    """
    rows, weights = _sample(dq, seed)
    wide_q, wide_do, given = (
        part.gather(2, rows.expand(*rows.shape[:3], part.shape[3])).double() for part in (q, do, dq)
    )
    group = q.shape[1] // k.shape[1]
    keys, values = (part.double().repeat_interleave(group, dim=1) for part in (k, v))
    logits = wide_q @ keys.mT * softmax_scale
    if causal:
        hidden = torch.arange(k.shape[2], device=q.device) > rows + (k.shape[2] - q.shape[2])
        logits = logits.masked_fill(hidden, -math.inf)
    if mask is not None:
        whole = mask.expand(*q.shape[:3], k.shape[2])
        logits = reference.masked(logits, whole.gather(2, rows.expand(*rows.shape[:3], k.shape[2])))
    p = logits.softmax(-1).nan_to_num(0.0)  # a row that sees no key has no weights
    wanted = softmax_scale * reference.slopes(p, wide_do, values) @ keys
    error, norm = (((part.square().sum(-1) * weights).sum(-1)).sqrt() for part in (given - wanted, wanted))
    return (error / norm).nan_to_num(nan=math.inf), norm


def _sample(dq: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Rows (batch, heads, rows, 1) of every head and how many each of them stands for (batch, heads, rows)."""
    lengths = torch.linalg.vector_norm(dq.float(), dim=-1).nan_to_num(nan=math.inf)
    count = lengths.shape[-1]
    longest = lengths.topk(min(LONGEST, count), dim=-1).indices
    places = torch.rand(count, generator=torch.Generator().manual_seed(seed)).to(dq.device).expand_as(lengths)
    places = places.scatter(-1, longest, -1.0)  # those are taken already
    drawn = places.topk(min(DRAWN, count - longest.shape[-1]), dim=-1).indices
    rows = torch.cat((longest, drawn), dim=-1)
    weights = torch.ones_like(rows, dtype=torch.float64)
    if drawn.shape[-1]:
        weights[..., longest.shape[-1] :] = (count - longest.shape[-1]) / drawn.shape[-1]
    return rows.unsqueeze(-1), weights
