"""Progress on a terminal as a bar that overwrites itself, elsewhere as lines with the seconds since the beginning."""

import re
import shutil
import time
from types import TracebackType
from typing import TextIO

WIDTH = 24


class ProgressBar:
    """Shows lines such as `accuracy fa3@ruler late-keybias 3/21`, the counter as a bar."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._begin = time.monotonic()
        self._read = True

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal:
            self._write("\r\x1b[K")

    def step(self, line: str) -> None:
        """Show one step; a reader that has gone ends no measurement."""
        if not self._terminal:
            self._write(f"{time.monotonic() - self._begin:6.1f} s  {line}\n")
            return
        counter = re.search(r"(\d+)/(\d+)", line)
        share = int(counter[1]) / int(counter[2]) if counter else 0.0
        bar = "█" * round(share * WIDTH) + "░" * (WIDTH - round(share * WIDTH))
        columns = shutil.get_terminal_size().columns - 1
        self._write(f"\r\x1b[K{bar} {line}"[: columns + 4])

    def _write(self, text: str) -> None:
        if not self._read:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._read = False
