"""Norm of the result over that of the reference: above one where error adds to a gradient, below where it takes."""

from torch import Tensor

NAME = "norm_ratio"
UNIT = "fraction"
BETTER = "none"


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """‖result‖ / ‖reference‖; one when both are zero, infinite when only the reference is."""
    norm, reference_norm = float(result.norm()), float(reference.norm())
    if reference_norm == 0.0:
        return 1.0 if norm == 0.0 else float("nan") if norm != norm else float("inf")
    return norm / reference_norm
