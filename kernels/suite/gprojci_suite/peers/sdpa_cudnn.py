"""torch scaled_dot_product_attention, cuDNN backend (CUDA only)."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gprojci_suite.peers import Case


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, compute capability 8.0 and square causal masks."""
    if device != "cuda":
        return "needs a CUDA device"
    if torch.cuda.get_device_capability() < (8, 0):
        return "needs compute capability 8.0"
    if case.causal and case.seq_q != case.seq_k:
        return "torch aligns the causal mask to the top left when seq_q and seq_k differ"
    return None


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through this backend only."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=softmax_scale, enable_gqa=q.shape[1] != k.shape[1]
        )
