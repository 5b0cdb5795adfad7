"""FlashAttention-2, the flash-attn package as it is usually built (CUDA, Ampere or newer)."""

from torch import Tensor

from gprojci_suite import flash_attn_build
from gprojci_suite.peers import Case


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, compute capability 8.0, and the package built so, which a probe of its results shows."""
    refused = flash_attn_build.refusal(case, device)
    if refused is None and flash_attn_build.unfused(_probed, "cuda"):
        return "this flash-attn was built with UNFUSE_FMA: it is the peer fa2-unfused"
    return refused


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


def _probed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention(q, k, v, causal=False, softmax_scale=0.125)
