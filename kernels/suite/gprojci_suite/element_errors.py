"""Distribution of the element errors of one slice, each scaled by the norm of its row of the reference."""

from torch import Tensor

ROW_FLOOR = 1e-4
"""Rows with less than this fraction of the largest row norm are scaled by it instead: their gradients steer nothing."""


def percentile(result: Tensor, reference: Tensor, thousandths: int) -> float:
    """The smallest scaled element error that at least `thousandths` of a thousand elements do not exceed.

    Args:
        result: (seq, head_dim), float64.
        reference: shaped like result.
        thousandths: 500 for the median, 1000 for the largest.

    Returns:
        A fraction; NaN when the result holds one, infinite when only the reference is zero.
    """
    norms = reference.norm(dim=-1, keepdim=True)
    largest = norms.max()
    if largest == 0:
        return 0.0 if bool((result == 0).all()) else float("inf")
    scaled = ((result - reference).abs() / norms.clamp_min(float(largest) * ROW_FLOOR)).flatten()
    if scaled.isnan().any():
        return float("nan")
    rank = -(-scaled.numel() * thousandths // 1000)
    return float(scaled.kthvalue(max(rank, 1)).values)
