"""Options that several commands of gprojci-suite have in common, and what their words mean."""

import argparse
import re
from collections.abc import Iterable


class UsageError(ValueError):
    """The command line asks for something that cannot be; the message is one line."""


def add_backends(parser: argparse._ActionsContainer, use: str) -> None:
    """Give a parser `--backends` and `--backend-entry`; `use` is what is done with a callable, as in "measure"."""
    parser.add_argument("--backends", default="", metavar="A,B", help="peers, and names given by --backend-entry")
    parser.add_argument(
        "--backend-entry",
        action="append",
        default=[],
        metavar="NAME=MODULE:CALLABLE",
        help=f"{use} a callable importable from here; may be repeated",
    )


def entries_of(texts: Iterable[str]) -> dict[str, str]:
    """`module:callable` by name from the values of `--backend-entry`; raises UsageError."""
    entries = {}
    for text in texts:
        match = re.fullmatch(r"([a-z0-9][a-z0-9._-]*)=([\w.]+:[\w.]+)", text)
        if match is None:
            raise UsageError(f"--backend-entry {text}: must be NAME=module:callable")
        entries[match[1]] = match[2]
    return entries


def words_of(text: str) -> list[str]:
    """The words between commas, each once, in their order."""
    return list(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
