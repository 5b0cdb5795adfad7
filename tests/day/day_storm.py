"""What happens to messages on their way: every tenth of each channel is lost, doubled or delayed, by a seed.

Channels are the webhooks (GitHub to the service), the service's requests to GitHub, and the worker's to the service.
What each fate means there stands where the channel is.
"""

from __future__ import annotations

import random
import threading
from typing import Literal

Fate = Literal["", "lost", "doubled", "delayed"]
FATES: tuple[Fate, ...] = ("lost", "doubled", "delayed")
EVERY = 10
FIRST = range(3, EVERY)
"""Which one may be the first. The first two webhooks make the repository known: without them there is no day."""


class _Channel:
    """Deals out the fates of one channel, whatever happens on the others meanwhile."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = random.Random(f"{seed} {name}")
        self._first = self._random.choice(FIRST)
        self._sent = 0
        self._waiting: list[Fate] = []

    def fate(self) -> Fate:
        """What becomes of its next message; each fate comes as often as the others."""
        self._sent += 1
        if self._sent % EVERY != self._first:
            return ""
        if not self._waiting:
            self._waiting = self._random.sample(FATES, len(FATES))
        return self._waiting.pop()


class Storm:
    """Deals out fates. Without a seed the weather is calm and every message arrives, once and in time."""

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._channels: dict[str, _Channel] = {}
        self.dealt: set[tuple[str, Fate]] = set()
        """What happened at all, by channel."""

    @property
    def rages(self) -> bool:
        """Whether it is not calm."""
        return self._seed is not None

    def fate(self, channel: str) -> Fate:
        """What becomes of the next message of a channel."""
        if self._seed is None:
            return ""
        with self._lock:
            dealer = self._channels.setdefault(channel, _Channel(self._seed, channel))
            fate = dealer.fate()
            if fate:
                self.dealt.add((channel, fate))
            return fate
