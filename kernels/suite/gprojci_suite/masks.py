"""The causal mask aligned to the bottom right, for libraries whose own is aligned to the top left."""

import torch
from torch import Tensor


def bottom_right(seq_q: int, seq_k: int, device: torch.device) -> Tensor:
    """(seq_q, seq_k), True where query i sees key j: j ≤ i + seq_k − seq_q."""
    return torch.ones(seq_q, seq_k, dtype=torch.bool, device=device).tril(seq_k - seq_q)
