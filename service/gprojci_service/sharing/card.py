"""The picture of a link preview (Open Graph): a verdict or state, what it is about, and why, as an SVG."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass

WIDTH, HEIGHT = 1200, 630
"""What Open Graph's readers expect: 1.91 to 1."""
_INK, _MUTED, _LINE, _SURFACE = "#1b1f27", "#586171", "#e3e7ec", "#ffffff"
_TONES = {
    "pass": ("#0b7452", "#e5f5ef"),
    "fail": ("#b3261e", "#fdecea"),
    "neutral": ("#855b00", "#fbf1dc"),
    "error": ("#7a3fb0", "#f3eafb"),
    "": ("#0063a1", "#e6f1f9"),
}
_MARKS = {
    "pass": '<path d="M-11 1l7 7 13-15"/>',
    "fail": '<path d="M-8-8l16 16M8-8l-16 16"/>',
    "neutral": '<path d="M-10 0h20"/>',
    "error": '<path d="M0-11v13M0 10v.5"/>',
    "": '<circle r="8"/>',
}
_TITLE_LETTERS, _LINE_LETTERS, _MOST_LINES = 42, 72, 5


@dataclass(frozen=True)
class Card:
    """`tone` is a verdict, or empty where nothing is judged; `lines` are sentences, the most important first."""

    tone: str
    word: str
    title: str
    lines: tuple[str, ...]
    where: str


def svg(card: Card) -> str:
    """The file; texts are cut to what there is room for."""
    strong, soft = _TONES[card.tone]
    title = _wrapped(card.title, _TITLE_LETTERS, 2)
    lines = [line for each in card.lines for line in _wrapped(each, _LINE_LETTERS, 2)][: _MOST_LINES - len(title)]
    top = 262 + 66 * (len(title) - 1)
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{_SURFACE}"/>',
        f'<rect width="16" height="{HEIGHT}" fill="{strong}"/>',
        f'<rect x="72" y="64" width="{96 + 19 * len(card.word)}" height="68" rx="34" fill="{soft}"/>',
        f'<g transform="translate(112 98)" fill="none" stroke="{strong}" stroke-width="5" stroke-linecap="round" '
        f'stroke-linejoin="round">{_MARKS[card.tone]}</g>',
        _text(142, 111, 36, 600, strong, card.word),
        *(_text(72, 216 + 66 * place, 54, 700, _INK, line) for place, line in enumerate(title)),
        *(_text(72, top + 28 + 46 * place, 30, 500, _INK, line) for place, line in enumerate(lines)),
        f'<path d="M72 540h{WIDTH - 144}" stroke="{_LINE}" stroke-width="2"/>',
        _text(72, 588, 28, 500, _MUTED, card.where),
        _text(WIDTH - 72, 588, 28, 600, _INK, "GProj CI", 'text-anchor="end"'),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"{''.join(parts)}</svg>"
    )


def _wrapped(text: str, letters: int, most: int) -> list[str]:
    return textwrap.wrap(text, letters, max_lines=most, placeholder="…") or [""]


def _text(x: int, y: int, size: int, weight: int, colour: str, words: str, more: str = "") -> str:
    look = f'font-size="{size}" font-weight="{weight}" fill="{colour}" {more}'
    return f'<text x="{x}" y="{y}" {look}>{html.escape(words)}</text>'
