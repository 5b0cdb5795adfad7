"""FlashAttention-2 as installed: calls it, and tells whether it was built with UNFUSE_FMA (the known repair).

The library carries no flag that says how it was built; its results do. With one visible key, attention returns the
value itself, whatever the logit. A fused multiply-add in exp2(fma(s, c, −round(m·c))) leaves a probability that is
not exactly 1 for large logits; rounded to 16 bits and divided by the sum of the unrounded ones it moves the output.
Rounding the product first (UNFUSE_FMA) makes the exponent exactly zero, so the output is exactly the value.
"""

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from gprojci_suite.peers import Case

ROWS = 4096
LOGITS = 1e6
"""Standard deviation of the probe's logits: large enough that a product's rounding error is seen in 16 bits."""


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float, deterministic: bool = False
) -> Tensor:
    """Attention through FlashAttention-2, whose layout is (batch, seq, heads, head_dim)."""
    from flash_attn.flash_attn_interface import flash_attn_func

    o: Tensor = flash_attn_func(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        causal=causal,
        softmax_scale=softmax_scale,
        deterministic=deterministic,
    )
    return o.transpose(1, 2)


def probed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The installed library as `unfused` asks it."""
    return attention(q, k, v, causal=False, softmax_scale=0.125)


def unfused(attention: Callable[[Tensor, Tensor, Tensor], Tensor], device: str) -> bool:
    """Whether `attention(q, k, v)`, (batch, heads, seq, 64) with scale 1/8 and no mask, rounds the product first."""
    generator = torch.Generator().manual_seed(0)
    q = torch.zeros(1, 1, ROWS, 64)
    q[..., 0] = 8 * LOGITS**0.5 * torch.randn(ROWS, generator=generator)
    k = torch.zeros(1, 1, 1, 64)
    k[..., 0] = LOGITS**0.5
    q, k, v = (x.to(device, torch.bfloat16) for x in (q, k, torch.ones(1, 1, 1, 64)))
    with torch.no_grad():
        return bool((attention(q, k, v) == 1).all())


def refusal(case: Case, device: str) -> str | None:
    """Why FlashAttention-2 cannot compute `case` on `device`, however it was built."""
    if device != "cuda":
        return "needs a CUDA device"
    if importlib.util.find_spec("flash_attn") is None:
        return "the package flash-attn is not installed"
    if importlib.util.find_spec("flash_attn.flash_attn_interface") is None:
        return "the package flash-attn is not installed (another one provides the module flash_attn)"
    if torch.cuda.get_device_capability() < (8, 0):
        return "needs compute capability 8.0"
    if case.head_dim > 256 or case.head_dim % 8:
        return "FlashAttention-2 takes multiples of 8 up to 256 as head_dim"
    return None
