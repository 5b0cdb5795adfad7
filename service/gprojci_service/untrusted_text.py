"""Text of strangers (commit messages, names, what kernels print) for pages and terminals: no escapes, no tricks."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[@-Z\\-_]|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str | None) -> str:
    """Untrusted text without terminal escapes, control characters and marks that reorder what is read.

    A carriage return leaves what a terminal would show: what stands after the last one of each line.
    """
    if not text or text.isprintable():  # which none of what is taken out is
        return text or ""
    stripped = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in stripped.split("\n")]
    return _CONTROLS.sub("", "\n".join(lines))


def ascii_controls(document: str) -> str:
    """A JSON document that a terminal may be given: what its strings hold of the above is written as `\\uXXXX`."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", document)
