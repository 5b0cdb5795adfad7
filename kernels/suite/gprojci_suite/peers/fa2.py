"""FlashAttention-2, the flash-attn package as it is usually built (CUDA, Ampere or newer)."""

from gprojci_suite import flash_attn_build
from gprojci_suite.flash_attn_build import attention
from gprojci_suite.peers import Case

__all__ = ["attention", "supported"]


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, compute capability 8.0, and the package built so, which a probe of its results shows."""
    refused = flash_attn_build.refusal(case, device)
    if refused is None and flash_attn_build.unfused(flash_attn_build.probed, "cuda"):
        return "this flash-attn was built with UNFUSE_FMA: it is the peer fa2-unfused"
    return refused
