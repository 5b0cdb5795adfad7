"""What the public calls accept, checked once and told in one clear error."""

import math

import torch
from torch import Tensor

from gproj.problem import METHODS

DTYPES = (torch.bfloat16, torch.float16)


class UnsupportedInput(ValueError):
    """The arguments are not attention inputs that this package computes."""


def checked_method(method: str) -> str:
    """The method's name, checked.

    Raises:
        UnsupportedInput: there is none of that name.
    """
    if method not in METHODS:
        raise UnsupportedInput(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    return method


def checked_packing(
    q: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int
) -> None:
    """Check how sequences are packed, without reading the device.

    Raises:
        UnsupportedInput: for any other type, shape, dtype, device or length.
    """
    for name, lengths in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if not isinstance(lengths, Tensor) or lengths.dtype != torch.int32 or lengths.dim() != 1 or not len(lengths):
            raise UnsupportedInput(f"{name} must be an int32 tensor of sequences + 1 offsets")
        if lengths.device != q.device or not lengths.is_contiguous():
            raise UnsupportedInput(f"{name} must be contiguous on {q.device}, got {lengths.device}")
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise UnsupportedInput(
            f"cu_seqlens_q and cu_seqlens_k must hold as many sequences, got {len(cu_seqlens_q)} and "
            f"{len(cu_seqlens_k)} offsets"
        )
    if max_seqlen_q < 0 or max_seqlen_k < 0:
        raise UnsupportedInput(f"max_seqlen must not be negative, got {max_seqlen_q} and {max_seqlen_k}")


def checked_scale(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None, packed: bool = False) -> float:
    """Check q, k and v, and return the factor of the logits, ``head_dim ** -0.5`` unless given.

    They are (batch, heads, seq, head_dim), or (total, heads, head_dim) where `packed`.

    Raises:
        UnsupportedInput: for any rank, shape, dtype, device or scale outside what the package documents.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise UnsupportedInput(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() != (3 if packed else 4):
            expected = "(total, heads, head_dim)" if packed else "(batch, heads, seq, head_dim)"
            raise UnsupportedInput(f"{name} must be {expected}, got shape {tuple(tensor.shape)}")
    if q.dtype not in DTYPES:
        raise UnsupportedInput(f"q must be bfloat16 or float16, got {q.dtype}; round it first, or use torch in float32")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise UnsupportedInput(f"q, k and v must share one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if k.device != q.device or v.device != q.device:
        raise UnsupportedInput(f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}")
    if k.shape != v.shape:
        raise UnsupportedInput(f"k and v must have one shape, got {tuple(k.shape)} and {tuple(v.shape)}")
    if packed:
        if q.shape[2] != k.shape[2]:
            raise UnsupportedInput(f"q {tuple(q.shape)} and k {tuple(k.shape)} must agree in head_dim")
    elif q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise UnsupportedInput(f"q {tuple(q.shape)} and k {tuple(k.shape)} must agree in batch and head_dim")
    if q.shape[-1] == 0 or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise UnsupportedInput(f"{q.shape[1]} query heads of {q.shape[-1]} cannot share {k.shape[1]} key/value heads")
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale)
    if not 0 < scale < math.inf:
        raise UnsupportedInput(f"softmax_scale must be finite and above zero, got {softmax_scale}")
    return scale
