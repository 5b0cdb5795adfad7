"""Peers: other implementations measured beside the subject. One file each, found by listing names, imported when asked.

A peer module's first docstring line describes it; it has `supported(case, device) -> str | None`, the reason why it
cannot run (None when it can), and `attention(q, k, v, *, causal, softmax_scale) -> o`, differentiable, with tensors
shaped (batch, heads, seq, head_dim). A module with `INPUT_DTYPE` gets the 16-bit inputs upcast to it before the call.
A peer never falls back to another implementation: what cannot run as named says so.
Outside, names are spelled with hyphens: `peers/sdpa_math.py` is `sdpa-math`.
"""

import ast
import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Case:
    """What a peer is asked to compute: shapes, mask and dtype (`bfloat16` or `float16`)."""

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    causal: bool
    dtype: str


class Peer(Protocol):
    """What a peer module offers."""

    def supported(self, case: Case, device: str) -> str | None:
        """Why the peer cannot compute `case` on `device`, or None when it can."""
        ...

    def attention(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
        """Differentiable attention."""
        ...


class UnknownPeer(ValueError):
    """There is no peer of that name."""


def names() -> list[str]:
    """Names of all peers, without importing any."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def get(name: str) -> Peer:
    """Import the peer called `name`; raises UnknownPeer, and ImportError where its file cannot be imported."""
    peer: Peer = importlib.import_module(_module(name))
    return peer


def description(name: str) -> str:
    """First line of the peer's docstring, read without importing it."""
    spec = importlib.util.find_spec(_module(name))
    assert spec is not None
    assert spec.origin is not None
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or "").splitlines()[0]


def _module(name: str) -> str:
    if name not in names():
        raise UnknownPeer(f"{name}: no such peer; known: {', '.join(names())}")
    return f"{__name__}.{name.replace('-', '_')}"
