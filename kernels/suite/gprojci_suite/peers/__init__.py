"""Peers: other implementations measured beside the subject. One file each, found by listing names, imported when asked.

A peer module's first docstring line describes it; it has `supported(case, device) -> str | None`, the reason why it
cannot run (None when it can), and `attention(q, k, v, *, causal, softmax_scale) -> o`, differentiable, with tensors
shaped (batch, heads, seq, head_dim). A module with `INPUT_DTYPE` gets the 16-bit inputs upcast to it before the call.
A peer never falls back to another implementation: what cannot run as named says so.
Outside, names are spelled with hyphens: `peers/sdpa_math.py` is `sdpa-math`. A peer of `peers/preprocessing` changes
the keys before another one runs: `keycenter-exact+sdpa-flash`.
"""

import ast
import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
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


@dataclass(frozen=True)
class Preprocessed:
    """A peer that runs on keys that were changed before.

    Attributes:
        peer: what runs on the changed keys.
        attention: does both, and takes whatever keywords the peer takes.
    """

    peer: Peer
    attention: Callable[..., Tensor]

    @property
    def INPUT_DTYPE(self) -> torch.dtype | None:  # noqa: N802 (as peer modules spell it)
        """What the inputs are upcast to before the call, or None to leave them."""
        return getattr(self.peer, "INPUT_DTYPE", None)

    def supported(self, case: Case, device: str) -> str | None:
        """The reason of the peer below."""
        return self.peer.supported(case, device)


def names() -> list[str]:
    """Names of all peers that stand alone, without importing any."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__) if not module.ispkg)


def preprocessing_names() -> list[str]:
    """Names of the peers that go before another one, without importing any."""
    folder = str(Path(__file__).parent / "preprocessing")
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules([folder]))


def check(name: str) -> None:
    """Raise UnknownPeer unless `name` is a peer, or a pre-processing one and a peer joined by `+`; imports nothing."""
    before, plus, peer = name.rpartition("+")
    if plus and before not in preprocessing_names():
        known = ", ".join(preprocessing_names())
        raise UnknownPeer(f"{name}: nothing called {before!r} goes before a peer; known: {known}")
    if not plus and name in preprocessing_names():
        raise UnknownPeer(f"{name}: goes before another peer; spell it {name}+PEER, such as {name}+sdpa-flash")
    if peer not in names():
        raise UnknownPeer(f"{name}: no such peer; known: {', '.join(names())}")


def get(name: str) -> Peer:
    """Import the peer called `name`; raises UnknownPeer, and ImportError where its file cannot be imported."""
    check(name)
    before, _, alone = name.rpartition("+")
    peer: Peer = importlib.import_module(_module(alone))
    if not before:
        return peer
    keys = importlib.import_module(_module(before)).keys

    @functools.wraps(peer.attention)
    def attention(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
        return peer.attention(q, keys(k), v, **settings)

    return Preprocessed(peer, attention)


def description(name: str) -> str:
    """First line of the docstring of a peer, or of a pre-processing one, read without importing it."""
    spec = importlib.util.find_spec(_module(name))
    if spec is None or spec.origin is None:
        raise UnknownPeer(f"{name}: no such peer; known: {', '.join(names())}")
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or "").splitlines()[0]


def _module(name: str) -> str:
    folder = f"{__name__}.preprocessing" if name in preprocessing_names() else __name__
    return f"{folder}.{name.replace('-', '_')}"
