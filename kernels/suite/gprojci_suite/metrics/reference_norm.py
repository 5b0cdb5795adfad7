"""Frobenius norm of the reference: a fact of the input, kept beside the errors it explains."""

from torch import Tensor

NAME = "reference_norm"
UNIT = "norm"
BETTER = "none"


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """‖reference‖."""
    return float(reference.norm())
