"""FP32 attention: torch's math in float32 (no TF32), inputs upcast, results and gradients left in float32."""

import torch
from torch import Tensor

from gprojci_suite.masks import bottom_right
from gprojci_suite.peers import Case

INPUT_DTYPE = torch.float32


def supported(case: Case, device: str) -> str | None:
    """Runs anywhere; on a GPU only while TF32 is off, which is torch's default."""
    if device == "cuda" and torch.backends.cuda.matmul.allow_tf32:
        return "TF32 is switched on, so this would not be FP32"
    return None


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """softmax(scale·QKᵀ)V, every step in float32."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.mT * softmax_scale
    if causal:
        visible = bottom_right(q.shape[2], k.shape[2], q.device)
        scores = scores.masked_fill(~visible, -torch.inf)
        if q.shape[2] > k.shape[2]:
            # Rows that see no key would be NaN; they are zero by convention.
            blind = ~visible.any(-1, keepdim=True)
            return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0) @ v
    return scores.softmax(-1) @ v
