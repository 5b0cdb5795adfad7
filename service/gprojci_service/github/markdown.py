"""GitHub's Markdown from untrusted text: names, messages and logs of code under test never become markup.

Source: the GitHub Flavored Markdown specification. Mentions, issue numbers and bare addresses are GitHub's own links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gprojci_service.untrusted_text import clean

MARKS = {"pass": "✅", "fail": "❌", "neutral": "⚪", "error": "⚠️"}
BREAK = "\u200b"
"""A zero-width space: parts what GitHub would make a mention, an issue or a link of."""
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()<>#+!|~&^$])")
_CODE = re.compile(r"`([^`]+)`")
_LINKS = re.compile(r"(@|#|:(?=//)|(?<=www)\.|(?<=GH)-)", re.IGNORECASE)


def literal(text: str, at_most: int = 500) -> str:
    """One line of text that reads as it is written, in a cell of a table as well."""
    return _escaped(_line(text, at_most))


def prose(text: str, at_most: int = 500) -> str:
    """One line of our own words that may quote others': literal, but for what stands between back-quotes as code."""
    parts = _CODE.split(_line(text, at_most))
    return "".join(code(part, at_most) if number % 2 else _escaped(part) for number, part in enumerate(parts))


def code(text: str, at_most: int = 100) -> str:
    """A name in a code span, which fits into a table as well; its back-quotes and bars become look-alikes."""
    line = _line(text, at_most).replace("`", "ˋ").replace("|", "¦")
    return f"`{line}`" if line else ""


def fence(text: str, at_most: int = 5000, language: str = "") -> list[str]:
    """Lines of a code block: the end of a text, whatever back-quotes it holds."""
    text = clean(text).strip()
    shown = text if len(text) <= at_most else f"…{text[-at_most:]}"
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    marks = "`" * max(3, longest + 1)
    return [marks + language, *shown.split("\n"), marks]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], most_bytes: int, more: str) -> list[str]:
    """Lines of a table of at most so many bytes, and how many rows are left out with where they are: `more`."""
    lines = [_row(head), "|" + "---|" * len(head)]
    left, rows = most_bytes - size(lines), list(rows)
    for number, row in enumerate(rows):
        line = _row(row)
        left -= size([line])
        if left < 0:
            return [*lines, "", f"{len(rows) - number} more of {len(rows)} do not fit here: {more}."]
        lines.append(line)
    return lines


def size(lines: Iterable[str]) -> int:
    """Bytes of lines with their ends."""
    return sum(len(line.encode()) + 1 for line in lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(line: str) -> str:
    return _LINKS.sub(lambda match: match[0] + BREAK, _PUNCTUATION.sub(r"\\\1", line))


def _line(text: str, at_most: int) -> str:
    line = " ".join(clean(text).split())
    return line if len(line) <= at_most else f"{line[: at_most - 1]}…"
