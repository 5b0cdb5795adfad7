"""Progress bars of long commands: on a terminal only, and beside the answer, so that pipes and scripts see none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from gprojci_service.client import wants_json


class Progress(Protocol):
    """What a command tells of how far it is."""

    def reach(self, position: int, words: str = "") -> None: ...


class _Bar:
    def __init__(self, bar: click._termui_impl.ProgressBar[int], length: int) -> None:
        self.bar, self.length = bar, length

    def reach(self, position: int, words: str = "") -> None:
        """Shows a position, and what is being done there."""
        self.bar.current_item = words  # type: ignore[assignment]
        self.bar.update(min(position, self.length) - self.bar.pos)
        self.bar.render_progress()


@contextmanager
def progress(label: str, length: int) -> Iterator[Progress]:
    """A bar of so many steps, on a terminal; elsewhere, and with `--json`, nothing is drawn."""
    bar: click._termui_impl.ProgressBar[int] = click.progressbar(
        length=max(length, 1),
        label=label,
        show_eta=False,
        file=sys.stderr,
        item_show_func=lambda item: str(item) if item else "",
        hidden=not sys.stderr.isatty() or wants_json(),
        update_min_steps=1,
    )
    with bar:
        yield _Bar(bar, max(length, 1))
