"""What every backend is handed: the settings of one attention call, what its forward keeps, what a backend accepts."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

GPROJ, GPROJ_DK, ZEROSUM, UNFUSED = "gproj", "gproj-dk", "zerosum", "unfused"
METHODS = (GPROJ, GPROJ_DK, ZEROSUM, UNFUSED)
PROJECTING = (GPROJ, GPROJ_DK)


@dataclass(frozen=True)
class Problem:
    """Settings of one call.

    Attributes:
        method: one of METHODS.
        causal: mask aligned to the bottom right of each sequence.
        scale: factor of the logits.
        deterministic: the same bits on every run are asked for.
        cu_seqlens_q: int32 (sequences + 1), first query row of each packed sequence; None where tensors are
            (batch, heads, seq, head_dim).
        cu_seqlens_k: the same of the keys.
        max_seqlen_q: longest sequence of queries.
        max_seqlen_k: longest sequence of keys.
    """

    method: str
    causal: bool
    scale: float
    deterministic: bool
    cu_seqlens_q: Tensor | None
    cu_seqlens_k: Tensor | None
    max_seqlen_q: int
    max_seqlen_k: int


class Saved(NamedTuple):
    """What a forward returns and its backward needs.

    Attributes:
        o: output, shaped like q, of its dtype.
        lse: float32 log-sum-exp of the scaled scores, (batch, heads, seq_q), packed (heads, total_q).
        beside_o: shaped like o, columns in an order of the backend's own: with "zerosum" what rounding took from o,
            with "gproj" the row's mean key less its strongest; empty where the backend does not keep it.
        strongest: int32 index of each row's strongest key, or one near it, within its sequence, shaped like lse; empty
            where beside_o is. A backend may use bits above the index for more about the row.
    """

    o: Tensor
    lse: Tensor
    beside_o: Tensor
    strongest: Tensor


class Gradients(NamedTuple):
    """dq, dk and dv, each shaped like its tensor and of its dtype."""

    dq: Tensor
    dk: Tensor
    dv: Tensor


@dataclass(frozen=True)
class Case:
    """What decides whether a backend computes a call; nothing in it needs the tensors' values.

    Attributes:
        device: where the tensors are.
        dtype: torch.bfloat16 or torch.float16.
        method: one of METHODS.
        causal: whether the mask is causal.
        deterministic: whether the same bits on every run are asked for.
        varlen: whether sequences are packed.
        batch: sequences.
        heads: query heads.
        kv_heads: key heads.
        seq_q: queries of a sequence, of the longest where packed.
        seq_k: keys of a sequence, of the longest where packed.
        head_dim: columns.
        strides: of q, k and v, in elements.
    """

    device: torch.device
    dtype: torch.dtype
    method: str
    causal: bool
    deterministic: bool
    varlen: bool
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def case_of(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Case:
    """The case of checked arguments."""
    varlen = problem.cu_seqlens_q is not None
    return Case(
        device=q.device,
        dtype=q.dtype,
        method=problem.method,
        causal=problem.causal,
        deterministic=problem.deterministic,
        varlen=varlen,
        batch=problem.cu_seqlens_q.shape[0] - 1 if problem.cu_seqlens_q is not None else q.shape[0],
        heads=q.shape[1],
        kv_heads=k.shape[1],
        seq_q=problem.max_seqlen_q,
        seq_k=problem.max_seqlen_k,
        head_dim=q.shape[-1],
        strides=(q.stride(), k.stride(), v.stride()),
    )
