"""What the determinism suite found: whether the same call gives the same bits again, and how far it strays."""

from dataclasses import dataclass

from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.vocabulary import Revision, Tensor


@dataclass(frozen=True)
class Repeatability:
    """Repeats of one tensor of one backend in one case."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    case: str
    """Name of the input set, or shape, mask and element type such as `1x1x16384x64.causal.bfloat16`."""
    tensor: Tensor
    """`o`, `dq`, `dk` or `dv`."""
    deterministic_requested: bool
    """Whether the callable was given `deterministic=True`."""
    repeats: int
    """How often it was computed; zero when the request could not be made."""
    bitwise: bool | None
    """Whether every repeat had the bits of the first; null without repeats."""
    spread: float | None
    """Largest relative difference to the first over repeats and slices that do not vanish, a fraction; null without."""
    detail: str | None
    """Why there are no repeats, such as a callable without the keyword `deterministic`; null when there are."""

    def check(self, path: str) -> None:
        """Raise ContractError unless repeats and what they found go together."""
        if self.repeats < 0 or self.repeats == 1:
            raise ContractError(f"{path}.repeats", "must be zero, or two and more")
        for name in ("bitwise", "spread"):
            if (getattr(self, name) is None) != (self.repeats == 0):
                raise ContractError(f"{path}.{name}", f"does not go with {self.repeats} repeats")
        if (self.detail is None) == (self.repeats == 0):
            raise ContractError(f"{path}.detail", f"does not go with {self.repeats} repeats")
