"""A command that runs in this one's place: it gets the signals, and what is to follow it follows it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signalled(Exception):
    """This process was sent one of SIGNALS; `exit_code` is what a shell makes of it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def signals_raise() -> Iterator[None]:
    """Within it each of SIGNALS raises Signalled in the main thread, so that no `finally` is left out."""

    def tell(number: int, _: FrameType | None) -> None:
        raise Signalled(number)

    with _handled(tell):
        yield


@contextmanager
def signals_wait() -> Iterator[None]:
    """Within it SIGNALS are held up, in whatever thread they come; the first of them raises at its end."""
    came: list[int] = []

    with _handled(lambda number, _: came.append(number)):
        yield
    if came:
        raise Signalled(came[0])


def run(command: Sequence[str]) -> int:
    """The exit code of a command, 128 and the signal's number where a signal ended it.

    Signals to this process go on to the command; but SIGINT, which a terminal sends to both.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def hand_on(number: int, _: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif number != signal.SIGINT:
            process.send_signal(number)

    with _handled(hand_on):
        process = subprocess.Popen(command)
        for number in early:
            process.send_signal(number)
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    with contextlib.ExitStack() as handlers:
        for number in SIGNALS:
            handlers.callback(signal.signal, number, signal.signal(number, handler))
        yield
