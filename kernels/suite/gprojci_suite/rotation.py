"""The inputs in a backend's process: other values in the same memory before each timed call, compared bit for bit
after it. Imports nothing but torch.
"""

from collections.abc import Mapping
from random import SystemRandom

import torch
from torch import Tensor

RANDOM = SystemRandom()  # Made before any measured code is imported, which could seed or replace others.


class Rotation:
    """q, k, v and do (batch, heads, seq, head_dim), where the backend gets them.

    Attributes:
        leaves: what the backend is called with; all but do require a gradient.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: str, dtype: torch.dtype | None) -> None:
        self._loaded = {name: tensor.to(device, dtype, copy=True) for name, tensor in tensors.items()}
        self.leaves = {name: tensor.clone().requires_grad_(name != "do") for name, tensor in self._loaded.items()}
        self._held = self._loaded
        self._places = {"q": 0, "k": 0}

    @property
    def extra_bytes(self) -> int:
        """Memory on the device that the ruler itself needs beside the leaves."""
        held = {tensor.data_ptr(): tensor.nbytes for part in (self._loaded, self._held) for tensor in part.values()}
        return sum(held.values())

    def restore(self) -> None:
        """The values that were loaded."""
        self._write(self._loaded, {"q": 0, "k": 0})

    def turn(self) -> None:
        """The loaded values, rolled along the sequence by a random number of places: no two calls see the same."""
        places = {name: RANDOM.randrange(self._loaded[name].shape[2]) for name in ("q", "k")}
        self._write(self._loaded, places)

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Other values, of the same shapes."""
        like = self._loaded["q"]
        self._write({name: tensor.to(like.device, like.dtype) for name, tensor in tensors.items()}, {"q": 0, "k": 0})

    def changed(self) -> str | None:
        """Name of an input whose bits are no longer those written here."""
        return next((name for name, leaf in self.leaves.items() if not same_bits(leaf, self._value(name))), None)

    def _write(self, held: Mapping[str, Tensor], places: Mapping[str, int]) -> None:
        self._held, self._places = dict(held), dict(places)
        with torch.no_grad():
            for name, leaf in self.leaves.items():
                leaf.copy_(self._value(name))

    def _value(self, name: str) -> Tensor:
        places = self._places["q" if name in ("q", "do") else "k"]
        return self._held[name].roll(places, dims=2) if places else self._held[name]


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have one shape, one type and the same bits; zeros of either sign differ."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return torch.equal(*(tensor.detach().contiguous().view(torch.uint8) for tensor in (first, second)))
