"""FlashAttention-4, the flash-attn-4 package in CuTe DSL (CUDA, Hopper or newer)."""

import importlib.util

import torch
from torch import Tensor

from gprojci_suite.peers import Case

SMALLEST = 32
"""Smallest head_dim at which its values were checked and right."""


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, the package and compute capability 9.0; head_dim as its Sm90 and Sm100 kernels take it."""
    if device != "cuda":
        return "needs a CUDA device"
    if importlib.util.find_spec("flash_attn") is None:
        return "the package flash-attn-4 is not installed"
    if importlib.util.find_spec("flash_attn.cute") is None:
        return "the package flash-attn-4 is not installed (another one provides the module flash_attn)"
    capability = torch.cuda.get_device_capability()
    if capability < (9, 0):
        return "needs compute capability 9.0"
    largest = 256 if capability[0] == 9 else 128
    if case.head_dim > largest or case.head_dim % 8:
        return f"FlashAttention-4 takes multiples of 8 up to {largest} as head_dim here"
    if case.head_dim < SMALLEST:
        return f"FlashAttention-4 computes wrong values below head_dim {SMALLEST} (seen with 4.0.0b36 at 16)"
    return None


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float, deterministic: bool = False
) -> Tensor:
    """Attention through FlashAttention-4, whose layout is (batch, seq, heads, head_dim)."""
    from flash_attn.cute import flash_attn_func

    result = flash_attn_func(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        causal=causal,
        softmax_scale=softmax_scale,
        deterministic=deterministic,
    )
    # Some versions return (o, lse).
    o: Tensor = result[0] if isinstance(result, tuple) else result
    return o.transpose(1, 2)
