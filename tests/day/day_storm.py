"""What happens to messages on their way: every tenth of each channel is lost, doubled or delayed, by a seed.

Channels are the webhooks (GitHub to the service), the service's requests to GitHub, and the worker's to the service.
What each fate means there stands where the channel is.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Literal

Fate = Literal["", "lost", "doubled", "delayed"]
FATES: tuple[Fate, ...] = ("lost", "doubled", "delayed")
EVERY = 10
FIRST = range(3, EVERY)
"""Which one may be the first. The first two webhooks make the repository known: without them there is no day."""


class Storm:
    """Deals out fates. Without a seed the weather is calm and every message arrives, once and in time."""

    def __init__(self, seed: int | None) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self._lock = threading.Lock()
        self._sent: Counter[str] = Counter()
        self._first: dict[str, int] = {}
        self._waiting: dict[str, list[Fate]] = {}
        self.dealt: list[tuple[str, Fate]] = []

    @property
    def rages(self) -> bool:
        """Whether it is not calm."""
        return self._seed is not None

    def fate(self, channel: str) -> Fate:
        """What becomes of the next message of a channel."""
        with self._lock:
            self._sent[channel] += 1
            first = self._first.setdefault(channel, self._random.choice(FIRST))
            if not self.rages or self._sent[channel] % EVERY != first:
                return ""
            waiting = self._waiting.setdefault(channel, [])
            if not waiting:
                waiting += self._random.sample(FATES, len(FATES))
            fate = waiting.pop()
            self.dealt.append((channel, fate))
            return fate
