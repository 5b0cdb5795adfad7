"""FlashAttention-2 built with UNFUSE_FMA, the known repair of the exponent (CUDA, Ampere or newer)."""

from gprojci_suite import flash_attn_build
from gprojci_suite.flash_attn_build import attention
from gprojci_suite.peers import Case

__all__ = ["attention", "supported"]


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, compute capability 8.0, and the package built so, which a probe of its results shows."""
    refused = flash_attn_build.refusal(case, device)
    if refused is None and not flash_attn_build.unfused(flash_attn_build.probed, "cuda"):
        return "this flash-attn was built with a fused exponent: build it with UNFUSE_FMA for this peer"
    return refused
