"""An attention call of a watched pass: what it was given and gave back, and how far its gradients are off."""

import math
from collections.abc import Callable, Iterable, Mapping
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

    def counted(self, name: str, largest: float) -> Tensor:
        """Error of every head, NaN where its gradient vanishes beside `largest`."""
        error, norm = self.heads[name]
        return torch.where(norm > VANISHING * largest, error, math.nan)

    def worst(self, name: str, largest: float) -> tuple[int, float]:
        """The head furthest off, of those whose gradient does not vanish beside `largest`, and its error."""
        error = self.counted(name, largest).nan_to_num(nan=0.0, posinf=math.inf)
        return int(error.argmax()), float(error.max())


def largest_norm(of: Iterable[Errors], name: str) -> float:
    """Norm of the longest gradient of all calls of a pass, beside which others vanish; 0 where there is none."""
    return max((each.largest(name) for each in of), default=0.0)


@dataclass
class WatchedCall:
    """One recorded call: how to repeat it, and the first sequence of what it was given and gave back.

    Attributes:
        layer: number of the call within its pass.
        attend: the call, of other q, k and v.
        causal: mask aligned to the bottom right.
        softmax_scale: factor of the logits.
        mask: of another kind, as `rows.row_error` takes it, None where there is none.
        q: queries (1, heads, seq_q, head_dim), as they were given.
        k: keys (1, kv_heads, seq_k, head_dim).
        v: values, shaped like k.
        do: gradient of o, None until it has come; so are those of q and k.
        dq: gradient of q that the backend returned.
        dk: the same of k.
    """

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
    mask: Tensor | None = None

    def errors(self, seed: int, *, dk: bool) -> Errors | None:
        """How far dq is off, in rows that `seed` draws, and dk if it is asked for; None until the gradients come."""
        if self.do is None or self.dq is None:
            return None
        given = (self.q, self.k, self.v, self.do)
        causal, scale, mask = self.causal, self.softmax_scale, self.mask
        response, _ = key_shift_response(self.attend, *given, self.dq)
        error, norm = row_error(*given, self.dq, causal=causal, softmax_scale=scale, mask=mask, seed=seed)
        found = {"dq": (error[0], norm[0]), "response": (response[0], norm[0])}
        if dk and self.dk is not None:
            wanted = reference.attention(*given, causal=causal, softmax_scale=scale, mask=mask).dk[0].flatten(1)
            length = wanted.norm(dim=-1)
            off = (self.dk[0].double().flatten(1) - wanted).norm(dim=-1)
            found["dk"] = ((off / length).nan_to_num(nan=math.inf), length)
        return Errors(self.layer, found)
