"""Largest of the element errors, each scaled by the norm of its row of the reference."""

from torch import Tensor

from gprojci_suite.element_errors import percentile

NAME = "p100"
UNIT = "fraction"
BETTER = "lower"


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """The largest scaled element error."""
    return percentile(result, reference, 1000)
