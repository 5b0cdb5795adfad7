"""A badge: a label and a value as a small SVG, in the flat look that READMEs know."""

from __future__ import annotations

import html
from dataclasses import dataclass

# All of them are dark enough for white letters (4.5:1).
_COLOURS = {"pass": "#0b7452", "fail": "#b3261e", "neutral": "#855b00", "error": "#7a3fb0", "": "#586171"}
_LABEL = "#3b424c"
_WIDTHS = {**dict.fromkeys("ijl.,:;'!| ", 3.6), **dict.fromkeys("frt()[]I-", 4.6), **dict.fromkeys("mwMW%@", 10.4)}


@dataclass(frozen=True)
class Badge:
    """`tone` is a verdict, or empty where nothing is judged; `about` is what a pointer or a screen reader is told."""

    label: str
    value: str
    tone: str
    about: str


def _width(text: str) -> int:
    """Width of 11 pixel Verdana; the letters are fitted to it, so it need not be exact."""
    return round(sum(_WIDTHS.get(letter, 6.9) for letter in text)) + 10


def svg(badge: Badge) -> str:
    """The file."""
    left, right = _width(badge.label), _width(badge.value)
    about = html.escape(f"{badge.label}: {badge.about or badge.value}")

    def words(text: str, start: int, width: int) -> str:
        return (
            f'<text x="{start + width / 2:.1f}" y="14" text-anchor="middle" '
            f'textLength="{width - 10}">{html.escape(text)}</text>'
        )

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{about}">'
        f'<title>{about}</title><clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="{_LABEL}"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[badge.tone]}"/></g>'
        '<g fill="#fff" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11">'
        f"{words(badge.label, 0, left)}{words(badge.value, left, right)}</g></svg>"
    )
