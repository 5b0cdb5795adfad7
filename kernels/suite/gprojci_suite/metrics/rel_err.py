"""Relative Frobenius error: the norm of result − reference over the norm of the reference."""

from torch import Tensor

NAME = "rel_err"
UNIT = "fraction"
BETTER = "lower"


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """‖result − reference‖ / ‖reference‖; zero when both are zero, infinite when only the reference is."""
    error, norm = float((result - reference).norm()), float(reference.norm())
    if norm == 0.0:
        return 0.0 if error == 0.0 else float("nan") if error != error else float("inf")
    return error / norm
