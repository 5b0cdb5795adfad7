"""torch scaled_dot_product_attention, flash backend: FlashAttention-2 on CUDA, torch's own kernel on CPU."""

from torch import Tensor
from torch.nn.attention import SDPBackend

from gprojci_suite import sdpa
from gprojci_suite.peers import Case

BACKEND = SDPBackend.FLASH_ATTENTION


def supported(case: Case, device: str) -> str | None:
    """Needs square causal masks (torch aligns others to the top left), and Ampere or newer on CUDA."""
    return sdpa.refusal_on_cuda(BACKEND, case) if device == "cuda" else sdpa.refusal_of_mask(case)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through the flash backend only."""
    return sdpa.attention(BACKEND, q, k, v, causal=causal, softmax_scale=softmax_scale)
