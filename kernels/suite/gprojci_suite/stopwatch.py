"""How much of a run's time went to the backends' own work."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

WORK = {"compute", "time", "warm", "graph", "kernels", "step"}
"""Commands in which a backend computes or is timed."""


class Stopwatch:
    """Context manager that adds up what passes within it; `seconds` is the sum."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0.0

    def __enter__(self) -> "Stopwatch":
        self._begin = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += time.monotonic() - self._begin


def is_work(message: Mapping[str, Any]) -> bool:
    """Whether a command has the backend called."""
    return message["do"] in WORK and not message.get("idle", False)
