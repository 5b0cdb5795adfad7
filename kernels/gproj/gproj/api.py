"""The public calls: dense and packed attention, and which backend computes them."""

import torch
from torch import Tensor

from gproj import operators
from gproj.arguments import checked_method, checked_packing, checked_scale
from gproj.backends import AUTO, Explanation, explained
from gproj.problem import GPROJ, UNFUSED, ZEROSUM, Problem, case_of


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    method: str = GPROJ,
    backend: str = AUTO,
    deterministic: bool = False,
) -> Tensor:
    """Softmax attention, differentiable once, whose dQ (and dK) keep the zero row sum of dS.

    Args:
        q: (batch, heads, seq_q, head_dim), bfloat16 or float16, of any strides; under autocast also float32.
        k: (batch, kv_heads, seq_k, head_dim) of the same dtype; kv_heads divides heads.
        v: shaped like k.
        causal: mask aligned to the bottom right, so the last query sees every key.
        softmax_scale: factor of the logits; head_dim ** -0.5 when None.
        method: "gproj", the published projection, repairs dQ; "gproj-dk" and "zerosum" repair dQ and dK; "unfused" is
            the known repair of the exponent alone.
        backend: "auto" or a name that `explain` lists; a named backend never falls back to another.
        deterministic: dQ, dK and dV must have the same bits on every run.

    Returns:
        (batch, heads, seq_q, head_dim) of q's dtype; zeros for rows that see no key.

    Raises:
        UnsupportedInput: for anything else, and where the named backend does not compute this.
    """
    q, k, v = _autocast(q, k, v)
    scale = checked_scale(q, k, v, softmax_scale)
    o: Tensor = operators.forward(
        q, k, v, None, None, q.shape[2], k.shape[2], causal, scale, checked_method(method), backend, deterministic
    )[0]
    return o


def zerosum_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, softmax_scale: float | None = None
) -> Tensor:
    """`attention` with method="zerosum"."""
    return attention(q, k, v, causal=causal, softmax_scale=softmax_scale, method=ZEROSUM)


def unfused_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, softmax_scale: float | None = None
) -> Tensor:
    """`attention` with method="unfused": the known repair of the exponent alone, to be measured beside the others."""
    return attention(q, k, v, causal=causal, softmax_scale=softmax_scale, method=UNFUSED)


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    method: str = GPROJ,
    backend: str = AUTO,
    deterministic: bool = False,
) -> Tensor:
    """`attention` of sequences of different lengths, packed one after the other.

    Args:
        q: (total_q, heads, head_dim), bfloat16 or float16, of any strides.
        k: (total_k, kv_heads, head_dim) of the same dtype; kv_heads divides heads.
        v: shaped like k.
        cu_seqlens_q: int32 (sequences + 1) on q's device, the first row of each sequence and total_q; not decreasing.
            Its values are not checked: that would wait for the device.
        cu_seqlens_k: the same of the keys, with as many sequences.
        max_seqlen_q: length of the longest sequence of queries; what lies beyond it is not computed.
        max_seqlen_k: the same of the keys.
        causal: mask aligned to the bottom right of each sequence.
        softmax_scale: as for `attention`, and so are method, backend and deterministic.
        method: see there.
        backend: see there.
        deterministic: see there.

    Returns:
        (total_q, heads, head_dim) of q's dtype.

    Raises:
        UnsupportedInput: for anything else, and where the named backend does not compute this.
    """
    q, k, v = _autocast(q, k, v)
    scale = checked_scale(q, k, v, softmax_scale, packed=True)
    checked_packing(q, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    o: Tensor = operators.forward(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        causal,
        scale,
        checked_method(method),
        backend,
        deterministic,
    )[0]
    return o


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    method: str = GPROJ,
    backend: str = AUTO,
    deterministic: bool = False,
) -> Explanation:
    """Which backend `attention` takes for these arguments, and why not the others; computes nothing.

    Raises:
        UnsupportedInput: as `attention`.
    """
    q, k, v = _autocast(q, k, v)
    scale = checked_scale(q, k, v, softmax_scale)
    problem = Problem(checked_method(method), causal, scale, deterministic, None, None, q.shape[2], k.shape[2])
    return explained(case_of(q, k, v, problem), backend)


def _autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Float32 tensors in the lower precision of an enclosing autocast, as torch's own attention takes them."""
    if not isinstance(q, Tensor) or not torch.is_autocast_enabled(q.device.type):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    q, k, v = (x.to(dtype) if isinstance(x, Tensor) and x.dtype == torch.float32 else x for x in (q, k, v))
    return q, k, v
