"""What the surface suite found: the error of each backend over synthetic offsets and spreads of the logits."""

from dataclasses import dataclass

from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.vocabulary import Revision, Tensor


@dataclass(frozen=True)
class SurfacePoint:
    """Error of one tensor of one backend at one point of the sweep over synthetic inputs; errors are fractions."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    ratio: float
    """Norm of the keys' common offset over their spread."""
    logit_std: float
    """Standard deviation of the logits without the offset."""
    tensor: Tensor
    """`o`, `dq`, `dk` or `dv`."""
    median: float
    """Median relative error over the heads, a fraction."""
    worst: float
    """Largest relative error over the heads, a fraction."""

    def check(self, path: str) -> None:
        """Raise ContractError for coordinates that no input can have."""
        if not 0 <= self.ratio < float("inf"):
            raise ContractError(f"{path}.ratio", "must be a finite number, zero or above")
        if not 0 < self.logit_std < float("inf"):
            raise ContractError(f"{path}.logit_std", "must be a finite number above zero")


@dataclass(frozen=True)
class Surface:
    """Results of the surface suite: the error over offset and spread of the logits."""

    points: tuple[SurfacePoint, ...]
    """One entry per backend, offset, deviation of the logits and tensor."""

    def check(self, path: str) -> None:
        """Raise ContractError where a point is there twice."""
        seen: set[tuple[str, str, float, float, str]] = set()
        for index, p in enumerate(self.points):
            key = (p.backend, p.revision, p.ratio, p.logit_std, p.tensor)
            if key in seen:
                raise ContractError(f"{path}.points[{index}]", "is there twice")
            seen.add(key)
