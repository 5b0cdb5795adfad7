"""torch scaled_dot_product_attention, memory-efficient backend (CUDA only)."""

from torch import Tensor
from torch.nn.attention import SDPBackend

from gprojci_suite import sdpa
from gprojci_suite.peers import Case

BACKEND = SDPBackend.EFFICIENT_ATTENTION


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, compute capability 8.0, square causal masks and as many KV heads as heads."""
    if device != "cuda":
        return "needs a CUDA device"
    if case.heads != case.kv_heads:
        return "the memory-efficient backend has no grouped heads"
    return sdpa.refusal_on_cuda(BACKEND, case)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through this backend only."""
    return sdpa.attention(BACKEND, q, k, v, causal=causal, softmax_scale=softmax_scale)
