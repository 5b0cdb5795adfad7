"""What the symmetry suite found: responses of gradients to shifts that must not move them."""

import math
from dataclasses import dataclass

from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.vocabulary import Response, Revision


@dataclass(frozen=True)
class SymmetryResponse:
    """One response of one slice (layer, batch, head) of one backend: zero in exact arithmetic."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    case: str
    """Name of the input set, or shape, mask and element type such as `1x1x16384x64.causal.bfloat16`."""
    slice: str
    """Name of the slice, such as `L1.b0.h0`; for dk the head is a key/value head."""
    response: Response
    """`dq_key_shift`, `dq_value_shift`, `dk_value_shift` or `dk_row_sum`."""
    value: float
    """Norm of the movement (or of the sum) over the norm of the tensor, a fraction; NaN where the tensor is zero."""
    vanishing: bool
    """Whether the tensor's norm is below 1e-4 of the largest one of its case: kept out of medians and gates."""


@dataclass(frozen=True)
class SymmetrySummary:
    """The slices of one backend, case and response in one line; median and worst leave out vanishing slices."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    case: str
    """Name of the input set, or shape, mask and element type."""
    response: Response
    """`dq_key_shift`, `dq_value_shift`, `dk_value_shift` or `dk_row_sum`."""
    median: float
    """Median response over the slices that do not vanish, a fraction; NaN when all vanish."""
    worst: float
    """Largest response over the slices that do not vanish, a fraction; NaN when all vanish."""
    worst_slice: str
    """Slice of the largest response; empty when all vanish."""
    slices: int
    """Slices measured, vanishing ones included."""
    vanishing: int
    """Slices that vanish."""

    def check(self, path: str) -> None:
        """Raise ContractError where a median exists although every slice vanishes."""
        if not 0 <= self.vanishing <= self.slices:
            raise ContractError(f"{path}.vanishing", f"{self.vanishing} of {self.slices} slices")
        if self.vanishing == self.slices and not math.isnan(self.median):
            raise ContractError(f"{path}.median", "must be NaN when every slice vanishes")


@dataclass(frozen=True)
class Symmetry:
    """Results of the symmetry suite."""

    responses: tuple[SymmetryResponse, ...]
    """One entry per backend, case, slice and response."""
    summary: tuple[SymmetrySummary, ...]
    """One entry per backend, case and response."""
