"""Metrics of one slice: one file each, found by listing names, imported only when asked.

A metric module has `NAME`, `UNIT`, `BETTER` ("lower", "higher" or "none") and
`compute(result, reference, largest_norm) -> float`, where result and reference are (seq, head_dim) float64 tensors
and largest_norm is the largest Frobenius norm of the reference over the slices of that tensor and input.
"""

import importlib
import pkgutil
from typing import Protocol

from torch import Tensor


class Metric(Protocol):
    """What a metric module offers."""

    NAME: str
    UNIT: str
    BETTER: str

    def compute(self, result: Tensor, reference: Tensor, largest_norm: float) -> float:
        """The metric's value for one slice."""
        ...


def names() -> list[str]:
    """Names of all metrics, without importing any."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def get(name: str) -> Metric:
    """The metric called `name`; raises KeyError for an unknown one."""
    if name not in names():
        raise KeyError(name)
    module: Metric = importlib.import_module(f"{__name__}.{name}")
    return module
