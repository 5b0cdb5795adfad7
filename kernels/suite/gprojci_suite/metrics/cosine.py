"""Cosine between result and reference, taken as vectors."""

from torch import Tensor

NAME = "cosine"
UNIT = "fraction"
BETTER = "higher"


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """⟨result, reference⟩ / (‖result‖‖reference‖); one when both are zero, zero when only one is."""
    norm, reference_norm = float(result.norm()), float(reference.norm())
    if norm == 0.0 or reference_norm == 0.0:
        return 1.0 if norm == reference_norm else 0.0
    # Scaling before the product keeps tiny gradients from underflowing.
    return float(((result / norm) * (reference / reference_norm)).sum())
