"""torch FlexAttention, compiled (CUDA only: on CPU it has no backward)."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from gprojci_suite.peers import Case


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA and a head_dim that is a power of two from 16."""
    if device != "cuda":
        return "needs a CUDA device: torch has no backward of FlexAttention on CPU"
    if case.head_dim not in (16, 32, 64, 128, 256):
        return "FlexAttention is compiled for head_dim 16, 32, 64, 128 or 256 here"
    return None


@functools.cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False)


@functools.cache
def _causal_mask(seq_q: int, seq_k: int, device: str) -> BlockMask:
    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + (seq_k - seq_q)

    return create_block_mask(visible, None, None, seq_q, seq_k, device=device)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through one compiled kernel per shape."""
    mask = _causal_mask(q.shape[2], k.shape[2], str(q.device)) if causal else None
    # Without the option short queries would get another kernel, made for decoding.
    o: Tensor = _compiled()(
        q,
        k,
        v,
        block_mask=mask,
        scale=softmax_scale,
        enable_gqa=q.shape[1] != k.shape[1],
        kernel_options={"FORCE_USE_FLEX_ATTENTION": True},
    )
    return o
