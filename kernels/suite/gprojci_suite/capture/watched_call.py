"""An attention call of a watched pass: what it was given and gave back, and how far its gradients are off."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gprojci_suite import reference
from gprojci_suite.accuracy import VANISHING
from gprojci_suite.capture.response import key_shift_response
from gprojci_suite.capture.rows import row_error


@dataclass(frozen=True)
class Errors:
    """Relative errors of one call.

    Attributes:
        layer: number of the call within its pass.
        heads: by what is off (dq, response, and dk where it is watched) the error of every head, and the norm of the
            gradient that it is relative to.
    """

    layer: int
    heads: Mapping[str, tuple[Tensor, Tensor]]

    def largest(self, name: str) -> float:
        """Norm of the head whose gradient is longest; 0 where it is not watched."""
        return float(self.heads[name][1].max()) if name in self.heads else 0.0

    def worst(self, name: str, largest: float) -> tuple[int, float]:
        """The head furthest off, of those whose gradient does not vanish beside `largest`, and its error."""
        error, norm = self.heads[name]
        error = torch.where(norm > VANISHING * largest, error, 0.0)
        return int(error.argmax()), float(error.max())


@dataclass
class WatchedCall:
    """One recorded call: how to repeat it, and the first sequence of what it was given and gave back."""

    layer: int
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    causal: bool
    softmax_scale: float
    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor | None = None
    dq: Tensor | None = None
    dk: Tensor | None = None

    def errors(self, seed: int) -> Errors | None:
        """How far its gradients are off, with the rows of dq that `seed` draws; None before they have come."""
        if self.do is None or self.dq is None:
            return None
        given, causal, scale = (self.q, self.k, self.v, self.do), self.causal, self.softmax_scale
        response, _ = key_shift_response(self.attend, *given, self.dq)
        error, norm = row_error(*given, self.dq, causal=causal, softmax_scale=scale, seed=seed)
        found = {"dq": (error[0], norm[0]), "response": (response[0], norm[0])}
        if self.dk is not None:
            wanted = reference.attention(*given, causal=causal, softmax_scale=scale).dk[0].flatten(1)
            length = wanted.norm(dim=-1)
            off = (self.dk[0].double().flatten(1) - wanted).norm(dim=-1)
            found["dk"] = ((off / length).nan_to_num(nan=math.inf), length)
        return Errors(self.layer, found)
