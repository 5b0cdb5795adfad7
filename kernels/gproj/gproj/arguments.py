"""What both algorithms accept, checked once and told in one clear error."""

import math

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16)


class UnsupportedInput(ValueError):
    """The arguments are not attention inputs that this package computes."""


def checked_scale(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None) -> float:
    """Check q, k, v and return the factor of the logits, ``head_dim ** -0.5`` unless given.

    Raises:
        UnsupportedInput: for any rank, shape, dtype, device or scale outside what the package documents.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise UnsupportedInput(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() != 4:
            raise UnsupportedInput(f"{name} must be (batch, heads, seq, head_dim), got shape {tuple(tensor.shape)}")
    if q.dtype not in DTYPES:
        raise UnsupportedInput(f"q must be bfloat16 or float16, got {q.dtype}; round it first, or use torch in float32")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise UnsupportedInput(f"q, k and v must share one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if k.device != q.device or v.device != q.device:
        raise UnsupportedInput(f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}")
    if k.shape != v.shape:
        raise UnsupportedInput(f"k and v must have one shape, got {tuple(k.shape)} and {tuple(v.shape)}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise UnsupportedInput(f"q {tuple(q.shape)} and k {tuple(k.shape)} must agree in batch and head_dim")
    if q.shape[3] == 0 or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise UnsupportedInput(f"{q.shape[1]} query heads of {q.shape[3]} cannot share {k.shape[1]} key/value heads")
    scale = q.shape[3] ** -0.5 if softmax_scale is None else float(softmax_scale)
    if not (math.isfinite(scale) and scale > 0):
        raise UnsupportedInput(f"softmax_scale must be finite and above zero, got {softmax_scale}")
    return scale
