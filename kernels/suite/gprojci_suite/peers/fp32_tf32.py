"""Memory-efficient attention in float32, its products made of TF32 parts on tensor cores: not exact (CUDA only)."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from gprojci_suite import sdpa
from gprojci_suite.peers import Case

BACKEND = SDPBackend.EFFICIENT_ATTENTION
INPUT_DTYPE = torch.float32


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, compute capability 8.0, square causal masks and as many KV heads as heads."""
    if device != "cuda":
        return "needs a CUDA device"
    if case.heads != case.kv_heads:
        return "the memory-efficient backend has no grouped heads"
    return sdpa.refusal_on_cuda(BACKEND, case, INPUT_DTYPE)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention of float32 tensors through the memory-efficient backend only."""
    return sdpa.attention(BACKEND, q, k, v, causal=causal, softmax_scale=softmax_scale)
