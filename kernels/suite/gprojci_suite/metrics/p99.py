"""99th percentile of the element errors, each scaled by the norm of its row of the reference."""

from torch import Tensor

from gprojci_suite.element_errors import percentile

NAME = "p99"
UNIT = "fraction"
BETTER = "lower"


def compute(result: Tensor, reference: Tensor, largest_norm: float) -> float:
    """The smallest scaled element error that at least 99% of the elements do not exceed."""
    return percentile(result, reference, 990)
