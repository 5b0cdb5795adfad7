"""FlashAttention-3, the flash_attn_interface module (CUDA, Hopper only)."""

import importlib.util

import torch
from torch import Tensor

from gprojci_suite.peers import Case


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, the package and compute capability 9.0."""
    if device != "cuda":
        return "needs a CUDA device"
    if importlib.util.find_spec("flash_attn_interface") is None:
        return "the package flash_attn_3 (module flash_attn_interface) is not installed"
    if torch.cuda.get_device_capability()[0] != 9:
        return "FlashAttention-3 runs on compute capability 9.x only"
    if case.head_dim > 256:
        return "FlashAttention-3 ends at head_dim 256"
    return None


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through FlashAttention-3, whose layout is (batch, seq, heads, head_dim)."""
    from flash_attn_interface import flash_attn_func

    result = flash_attn_func(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=causal, softmax_scale=softmax_scale
    )
    # Some versions return (o, lse).
    o: Tensor = result[0] if isinstance(result, tuple) else result
    return o.transpose(1, 2)
