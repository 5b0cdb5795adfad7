"""How verdicts, and the text of others, are written on GitHub."""

from __future__ import annotations

MARKS = {"pass": "✅", "fail": "❌", "neutral": "⚪", "error": "⚠️"}


def cell(text: str) -> str:
    """A text for a cell of a table: none of it becomes markup, and nobody is mentioned by it."""
    return (
        text.replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("\n", " ")
        .replace("<", "&lt;")
        .replace("[", "\\[")
        .replace("@", "@\u200b")
    )
