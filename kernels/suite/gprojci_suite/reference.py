"""Attention and its gradients in float64, straight from the formulas, some rows at a time."""

from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 256


@dataclass(frozen=True)
class AttentionResult:
    """o and dq (batch, heads, seq_q, head_dim), dk and dv (batch, kv_heads, seq_k, head_dim)."""

    o: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    *,
    causal: bool,
    softmax_scale: float,
    mask: Tensor | None = None,
    rows: int = ROWS,
) -> AttentionResult:
    """Float64 reference on the device of the inputs.

    With S = scale·QKᵀ, P = softmax(S), dP = dO·Vᵀ, D = rowsum(P∘dP) and dS = P∘(dP − D):
    O = PV, dQ = scale·dS·K, dK = scale·dSᵀQ, dV = Pᵀ·dO.

    Args:
        q: (batch, heads, seq_q, head_dim); any floating dtype, upcast exactly.
        k: (batch, kv_heads, seq_k, head_dim); kv_heads divides heads.
        v: shaped like k.
        do: gradient of o, shaped like q.
        causal: mask aligned to the bottom right; rows that see no key give zeros.
        softmax_scale: factor of the logits.
        mask: added to the logits, or of bool, True where they count; expands to (batch, heads, seq_q, seq_k).
        rows: query rows at a time, which bounds memory and changes no value beyond float64 rounding.
    """
    batch, heads, seq_q, head_dim = q.shape
    kv_heads, seq_k = k.shape[1], k.shape[2]
    grouped = (batch, kv_heads, heads // kv_heads, seq_q, head_dim)
    queries, grads = q.double().reshape(grouped), do.double().reshape(grouped)
    keys, values = k.double(), v.double()
    o, dq = torch.zeros_like(queries), torch.zeros_like(queries)
    dk, dv = torch.zeros_like(keys), torch.zeros_like(values)
    for start in range(0, seq_q, rows):
        stop = min(start + rows, seq_q)
        seen = min(seq_k, max(0, stop + seq_k - seq_q)) if causal else seq_k
        if seen == 0:
            continue
        q_rows, do_rows = queries[:, :, :, start:stop].flatten(2, 3), grads[:, :, :, start:stop].flatten(2, 3)
        scores = q_rows @ keys[:, :, :seen].mT * softmax_scale
        if causal:
            last = torch.arange(start, stop, device=q.device) + seq_k - seq_q
            hidden = torch.arange(seen, device=q.device) > last[:, None]
            scores = scores.masked_fill(hidden.repeat(grouped[2], 1), -torch.inf)
        if mask is not None:
            part = mask.expand(batch, heads, seq_q, seq_k)[:, :, start:stop, :seen]
            scores = masked(scores, part.reshape(scores.shape))
        blind = mask is not None or (causal and seq_q > seq_k)
        p = scores.softmax(-1).nan_to_num(0.0) if blind else scores.softmax(-1)
        ds = slopes(p, do_rows, values[:, :, :seen])
        shape = (batch, kv_heads, grouped[2], stop - start, head_dim)
        o[:, :, :, start:stop] = (p @ values[:, :, :seen]).view(shape)
        dq[:, :, :, start:stop] = (ds @ keys[:, :, :seen] * softmax_scale).view(shape)
        dk[:, :, :seen] += ds.mT @ q_rows * softmax_scale
        dv[:, :, :seen] += p.mT @ do_rows
    return AttentionResult(o.view(q.shape), dq.view(q.shape), dk, dv)


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """Logits under a mask of their shape: added to them, or of bool, True where they count."""
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


def slopes(p: Tensor, do: Tensor, v: Tensor) -> Tensor:
    """dS = P∘(dP − D) of some rows, shaped like p.

    Args:
        p: probabilities (…, rows, keys).
        do: gradient of o, (…, rows, head_dim).
        v: values (…, keys, head_dim).
    """
    dp = do @ v.mT
    return p * (dp - (p * dp).sum(-1, keepdim=True))
