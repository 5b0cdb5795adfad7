"""torch scaled_dot_product_attention, cuDNN backend (CUDA only)."""

from torch import Tensor
from torch.nn.attention import SDPBackend

from gprojci_suite import sdpa
from gprojci_suite.peers import Case

BACKEND = SDPBackend.CUDNN_ATTENTION


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, compute capability 8.0, square causal masks, and torch's word that the backend can."""
    return "needs a CUDA device" if device != "cuda" else sdpa.refusal_on_cuda(BACKEND, case)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through this backend only."""
    return sdpa.attention(BACKEND, q, k, v, causal=causal, softmax_scale=softmax_scale)
