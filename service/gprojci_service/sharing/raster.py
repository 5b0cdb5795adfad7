"""SVG to PNG, for where no SVG is shown: link previews, mail, slides. The letters are those of a font in a package, so
that a host without fonts draws the same."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import resvg_py

KEPT = 64
"""Pictures that are kept, of some 60 KB each: a link preview asks for the same one many times."""
_FAMILY = "Hanken Grotesk"
_WEIGHTS = ("Medium", "SemiBold", "Bold")


@lru_cache(maxsize=1)
def _fonts() -> list[str]:
    folder = files("font_hanken_grotesk") / "files"
    return [str(folder / f"HankenGrotesk-{weight}.otf") for weight in _WEIGHTS]


@lru_cache(maxsize=KEPT)
def png(svg: str, width: int) -> bytes:
    """A PNG of so many pixels across, in the light colours; of what the font lacks a letter stays empty.

    Raises:
        ValueError: it is no SVG.
    """
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg,
            width=width,
            skip_system_fonts=True,
            font_files=_fonts(),
            font_family=_FAMILY,
            sans_serif_family=_FAMILY,
        )
    )
