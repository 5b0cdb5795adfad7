"""torch scaled_dot_product_attention, flash backend: FlashAttention-2 on CUDA, torch's own kernel on CPU."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gprojci_suite.peers import Case


def supported(case: Case, device: str) -> str | None:
    """Needs square causal masks (torch aligns others to the top left), and Ampere or newer on CUDA."""
    if case.causal and case.seq_q != case.seq_k:
        return "torch aligns the causal mask to the top left when seq_q and seq_k differ"
    if device == "cuda" and torch.cuda.get_device_capability() < (8, 0):
        return "the flash backend needs compute capability 8.0"
    if device == "cuda" and case.head_dim > 256:
        return "the flash backend ends at head_dim 256"
    return None


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through the flash backend only."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=softmax_scale, enable_gqa=q.shape[1] != k.shape[1]
        )
