"""Fast full precision: 16-bit inputs and products, FP32 softmax and D, dS as a 16-bit pair hi + lo in dQ and dK.

The comparator for "just compute the backward pass precisely". S = QKᵀ and dP = dO·Vᵀ multiply the 16-bit inputs as
they are. O = PV and dV = PᵀdO take P, normalised in FP32, rounded once to 16 bits. D = rowsum(P∘dP) comes from the FP32
P and dP, never from O. Exactly two products consume dS = P∘(dP − D): dQ = dS·K and dK = dSᵀ·Q; each is computed twice,
with hi = round16(dS) and with lo = round16(dS − hi), and summed. Seven matrix products where a plain kernel has five in
the backward pass. Every sum is FP32; only O, dQ, dK and dV are rounded to 16 bits in the end.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gprojci_suite.peers import Case

ROWS = 1024  # query rows at a time: bounds the memory of the score matrix


def supported(case: Case, device: str) -> str | None:
    """Runs anywhere: plain torch."""
    return None


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention with the products above."""
    o: Tensor = _Attention.apply(q, k, v, causal, softmax_scale)  # type: ignore[no-untyped-call]
    return o


@contextmanager
def _exact_products() -> Iterator[None]:
    """Let float32 products of 16-bit values run on tensor cores: BF16 and FP16 values are exact in TF32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _rows(seq_q: int, seq_k: int, causal: bool) -> Iterator[tuple[slice, int]]:
    """(rows, keys that any of them sees), blocks that see none left out."""
    for start in range(0, seq_q, ROWS):
        stop = min(start + ROWS, seq_q)
        seen = min(seq_k, stop + seq_k - seq_q) if causal else seq_k
        if seen > 0:
            yield slice(start, stop), seen


def _probabilities(q: Tensor, k: Tensor, rows: slice, shift: int, causal: bool, scale: float) -> Tensor:
    """FP32 softmax of the rows; zero where a row sees no key. `shift` is seq_k − seq_q."""
    scores = q @ k.mT * scale
    if causal:
        last = torch.arange(rows.start, rows.stop, device=q.device)[:, None] + shift
        scores = scores.masked_fill(torch.arange(k.shape[-2], device=q.device) > last, -torch.inf)
        if rows.start + shift < 0:
            return scores.softmax(-1).masked_fill(last < 0, 0.0)
    return scores.softmax(-1)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
        grouped = (q.shape[0], k.shape[1], q.shape[1] // k.shape[1], *q.shape[2:])
        queries, keys, values = q.float().reshape(grouped), k.float()[:, :, None], v.float()[:, :, None]
        seq_q, seq_k = q.shape[2], k.shape[2]
        o = torch.zeros(grouped, device=q.device)
        with _exact_products():
            for rows, seen in _rows(seq_q, seq_k, causal):
                p = _probabilities(queries[..., rows, :], keys[..., :seen, :], rows, seq_k - seq_q, causal, scale)
                o[..., rows, :] = p.to(q.dtype).float() @ values[..., :seen, :]
        ctx.save_for_backward(q, k, v)
        ctx.settings = causal, scale
        return o.view(q.shape).to(q.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        causal, scale = ctx.settings
        grouped = (q.shape[0], k.shape[1], q.shape[1] // k.shape[1], *q.shape[2:])
        queries, do = q.float().reshape(grouped), grad.float().reshape(grouped)
        keys, values = k.float()[:, :, None], v.float()[:, :, None]
        seq_q, seq_k = q.shape[2], k.shape[2]
        dq = torch.zeros(grouped, device=q.device)
        dk, dv = torch.zeros_like(k, dtype=torch.float32), torch.zeros_like(v, dtype=torch.float32)
        with _exact_products():
            for rows, seen in _rows(seq_q, seq_k, causal):
                q_rows, do_rows, keys_seen = queries[..., rows, :], do[..., rows, :], keys[..., :seen, :]
                p = _probabilities(q_rows, keys_seen, rows, seq_k - seq_q, causal, scale)
                dp = do_rows @ values[..., :seen, :].mT
                ds = p * (dp - (p * dp).sum(-1, keepdim=True))
                high = ds.to(q.dtype).float()
                low = (ds - high).to(q.dtype).float()
                dq[..., rows, :] = (high @ keys_seen + low @ keys_seen) * scale
                # Query heads of one group add up in their key/value head.
                wide = q_rows.flatten(2, 3)
                dk[:, :, :seen] += (high.flatten(2, 3).mT @ wide + low.flatten(2, 3).mT @ wide) * scale
                dv[:, :, :seen] += p.to(q.dtype).float().flatten(2, 3).mT @ do_rows.flatten(2, 3)
        return dq.view(q.shape).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None
