"""Number of NaN and Inf elements of the result; any at all fails the gate."""

import torch
from torch import Tensor

NAME = "nonfinite"
UNIT = "elements"
BETTER = "lower"


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """NaN and Inf elements of the result."""
    return float((~torch.isfinite(result)).sum())
