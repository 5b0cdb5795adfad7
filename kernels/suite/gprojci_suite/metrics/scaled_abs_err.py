"""Absolute Frobenius error over the largest reference norm of the input: what counts for vanishing slices."""

from torch import Tensor

NAME = "scaled_abs_err"
UNIT = "fraction"
BETTER = "lower"


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """‖result − reference‖ / largest_norm; zero when both are zero, infinite when only largest_norm is."""
    error = float((result - reference).norm())
    if largest_norm == 0.0:
        return 0.0 if error == 0.0 else float("nan") if error != error else float("inf")
    return error / largest_norm
