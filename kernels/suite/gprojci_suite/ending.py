"""When a run ends before it is done: its seconds are over, or SIGTERM or SIGINT asked for it."""

import contextlib
import math
import signal
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """Asked between and within the calls of backends; once there is a reason to end it stays the same.

    Args:
        seconds: how long the run may take from now on; None for as long as it needs.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._deadline = math.inf if seconds is None else time.monotonic() + seconds
        self._over = "" if seconds is None else f"the session's {seconds:g} s were over"
        self._signal: signal.Signals | None = None
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the run is to end now; None while it may go on."""
        if self._reason is None and self._signal is not None:
            self._reason = f"{self._signal.name} ended the session"
        if self._reason is None and time.monotonic() >= self._deadline:
            self._reason = self._over
        return self._reason

    @property
    def exit_status(self) -> int | None:
        """128 and the signal's number, as shells have it; None when no signal came."""
        return None if self._signal is None else 128 + self._signal

    @contextlib.contextmanager
    def on_signals(self) -> Iterator["Ending"]:
        """Let the first SIGTERM or SIGINT within be the reason to end, and the second end the process at once."""
        before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, _: FrameType | None) -> None:
        self._signal = signal.Signals(number)
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
