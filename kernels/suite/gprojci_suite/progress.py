"""Progress on a terminal as a bar that overwrites itself, elsewhere as plain lines."""

import re
import shutil
from types import TracebackType
from typing import TextIO

WIDTH = 24


class ProgressBar:
    """Shows lines such as `accuracy fa3@ruler late-keybias 3/21`, the counter as a bar."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def step(self, line: str) -> None:
        """Show one step."""
        if not self._terminal:
            print(line, file=self._stream, flush=True)
            return
        counter = re.search(r"(\d+)/(\d+)", line)
        share = int(counter[1]) / int(counter[2]) if counter else 0.0
        bar = "█" * round(share * WIDTH) + "░" * (WIDTH - round(share * WIDTH))
        columns = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{bar} {line}"[: columns + 4])
        self._stream.flush()
