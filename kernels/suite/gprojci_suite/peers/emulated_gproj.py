"""Emulated GProj: the known repair, and dQ projected back onto zero row sums along P."""

from torch import Tensor

from gprojci_suite import emulation
from gprojci_suite.peers import Case

ROUNDING = emulation.Rounding(unfused=True, projection="probabilities")


def supported(case: Case, device: str) -> str | None:
    """Runs anywhere: plain torch."""
    return None


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention with the rounding points above."""
    return emulation.attention(q, k, v, causal=causal, softmax_scale=softmax_scale, rounding=ROUNDING)
