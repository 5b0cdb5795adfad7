"""torch's scaled_dot_product_attention with exactly one backend allowed, and torch's own word on what that can do."""

import warnings

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gprojci_suite.peers import Case

QUESTIONS = {
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.can_use_flash_attention,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.can_use_efficient_attention,
    SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.can_use_cudnn_attention,
}


def attention(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through `backend` alone; torch raises RuntimeError where that cannot."""
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=softmax_scale, enable_gqa=q.shape[1] != k.shape[1]
        )


def refusal_of_mask(case: Case) -> str | None:
    """The reason against a causal mask that is not square, which torch aligns to the top left."""
    if case.causal and case.seq_q != case.seq_k:
        return "torch aligns the causal mask to the top left when seq_q and seq_k differ"
    return None


def refusal_on_cuda(backend: SDPBackend, case: Case, dtype: torch.dtype | None = None) -> str | None:
    """Why `backend` cannot compute `case` on the current GPU, forward and backward, in torch's own words.

    Args:
        backend: flash, memory-efficient or cuDNN.
        case: shapes and mask.
        dtype: what the tensors are converted to; that of the case when None.
    """
    if torch.cuda.get_device_capability() < (8, 0):
        return "needs compute capability 8.0"
    refused = refusal_of_mask(case)
    if refused is not None:
        return refused
    element = dtype or getattr(torch, case.dtype)
    q, k, v = (
        torch.empty(case.batch, heads, seq, case.head_dim, dtype=element, device="cuda", requires_grad=True)
        for heads, seq in ((case.heads, case.seq_q), (case.kv_heads, case.seq_k), (case.kv_heads, case.seq_k))
    )
    grouped = case.heads != case.kv_heads
    parameters = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, case.causal, grouped)
    with warnings.catch_warnings(record=True) as said, sdpa_kernel(backend):
        warnings.simplefilter("always")
        able = QUESTIONS[backend](parameters, debug=True)
    if able:
        return None
    words = [str(item.message).split(" (Triggered internally")[0].strip() for item in said]
    return "; ".join(words) or f"torch says that its backend {backend.name} cannot compute this case"
