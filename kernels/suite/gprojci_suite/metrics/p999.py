"""99.9th percentile of the element errors, each scaled by the norm of its row of the reference."""

import torch
from torch import Tensor

NAME = "p999"
UNIT = "fraction"
BETTER = "lower"

ROW_FLOOR = 1e-4
"""Rows with less than this fraction of the largest row norm are scaled by it instead: their gradients steer nothing."""


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """The smallest scaled element error that at least 99.9% of the elements do not exceed."""
    norms = reference.norm(dim=-1, keepdim=True)
    largest = norms.max()
    if largest == 0:
        return 0.0 if bool((result == 0).all()) else float("inf")
    scaled = ((result - reference).abs() / norms.clamp_min(float(largest) * ROW_FLOOR)).flatten()
    if torch.isnan(scaled).any():
        return float("nan")
    rank = -(-scaled.numel() * 999 // 1000)
    return float(scaled.kthvalue(rank).values)
