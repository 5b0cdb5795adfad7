"""What the models learn, without a network: Python's own sources as bytes, or associative recall. A batch depends on
seed and step alone, so every backend sees the same ones, and a resumed run those it would have seen."""

import functools
import hashlib
import sysconfig
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from gprojci_suite.contract.training import TrainingData

VOCABULARY = 256
IGNORED = -100
"""Target that costs no loss, as `torch.nn.functional.cross_entropy` has it."""
NAMES = ("library", "recall")
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
"""Folders of the library that distributions leave out, and what is no part of it."""


class Data(Protocol):
    """Batches by seed and step."""

    def describe(self, batch: int) -> TrainingData:
        """What a report says of it."""
        ...

    def batch(self, seed: int, step: int, batch: int, sequence: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets of one step, int64 (batch, sequence) each on the CPU."""
        ...


class Library:
    """The sources of the running Python's standard library, in the order of their hashes, bytes as tokens."""

    def __init__(self) -> None:
        self.text = torch.frombuffer(bytearray(_library()), dtype=torch.uint8)

    def describe(self, batch: int) -> TrainingData:
        """Name, hash and size."""
        digest = hashlib.sha256(_library()).hexdigest()
        return TrainingData("library", f"sha256:{digest}", batch, self.text.numel())

    def batch(self, seed: int, step: int, batch: int, sequence: int) -> tuple[Tensor, Tensor]:
        """Stretches of the text that begin anywhere, and the bytes that follow each of theirs."""
        begins = torch.randint(self.text.numel() - sequence, (batch, 1), generator=generator(seed, step))
        found = self.text[begins + torch.arange(sequence + 1)].long()
        return found[:, :-1], found[:, 1:]


class Recall:
    """Associative recall: pairs of a key and its value, drawn again and again; the value of a key seen before is asked.

    Each sequence has its own values for its own `PAIRS` keys. Whatever cannot be known has no target.
    """

    PAIRS = 32
    KEYS = VOCABULARY // 2

    def describe(self, batch: int) -> TrainingData:
        """Name, and the hash of the task's parameters."""
        parameters = f"recall pairs={self.PAIRS} keys={self.KEYS} vocabulary={VOCABULARY}"
        return TrainingData("recall", f"sha256:{hashlib.sha256(parameters.encode()).hexdigest()}", batch)

    def batch(self, seed: int, step: int, batch: int, sequence: int) -> tuple[Tensor, Tensor]:
        """Keys at even places, their values behind them."""
        draw = generator(seed, step)
        keys = torch.rand(batch, self.KEYS, generator=draw).argsort(1)[:, : self.PAIRS]
        values = torch.randint(self.KEYS, VOCABULARY, keys.shape, generator=draw)
        chosen = torch.randint(self.PAIRS, (batch, sequence // 2 + 1), generator=draw)
        tokens = torch.stack((keys.gather(1, chosen), values.gather(1, chosen)), 2).flatten(1)[:, :sequence]
        earlier = (chosen[:, :, None] == chosen[:, None, :]).tril(-1).any(2)
        asked = torch.where(earlier, values.gather(1, chosen), IGNORED)
        targets = torch.stack((asked, torch.full_like(asked, IGNORED)), 2).flatten(1)[:, :sequence]
        return tokens, targets


def load(name: str) -> Data:
    """The data called `name`, one of NAMES."""
    return Library() if name == "library" else Recall()


def generator(seed: int, step: int) -> torch.Generator:
    """Random numbers of one step."""
    digest = hashlib.sha256(f"{seed} {step}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


@functools.cache
def _library() -> bytes:
    folder = Path(sysconfig.get_path("stdlib"))
    found = {}
    for path in folder.rglob("*.py"):
        if path.is_file() and not LEFT_OUT.intersection(path.relative_to(folder).parts):
            content = path.read_bytes()
            found[hashlib.sha256(content).digest()] = content
    return b"".join(found[key] for key in sorted(found))
