"""What a check run shows, within GitHub's limits.

Source: GitHub's REST documentation, "Create a check run", parameter `output`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gprojci_service.untrusted_text import clean

TEXT_LIMIT = 65535
"""Of summary and text each. GitHub says characters; bytes are safe whichever it counts."""
TITLE_LIMIT = 255
ANNOTATIONS_LIMIT = 50
MESSAGE_LIMIT = 2000


@dataclass(frozen=True)
class Annotation:
    """A remark on a line of a file of the commit; plain text."""

    path: str
    line: int
    message: str
    title: str
    column: int | None = None

    def to_json(self) -> dict[str, Any]:
        columns = {} if self.column is None else {"start_column": self.column, "end_column": self.column}
        return {
            "path": self.path,
            "start_line": self.line,
            "end_line": self.line,
            **columns,
            "annotation_level": "failure",
            "title": self.title[:TITLE_LIMIT],
            "message": clean(self.message)[:MESSAGE_LIMIT],
        }


@dataclass(frozen=True)
class CheckOutput:
    """Title, summary and text of a check run, both Markdown, and remarks on files."""

    title: str
    summary: str
    text: str = ""
    annotations: tuple[Annotation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """`output` of the request; whatever is still too long is cut at the end of a line."""
        output: dict[str, Any] = {"title": clean(self.title)[:TITLE_LIMIT], "summary": _cut(self.summary)}
        if self.text:
            output["text"] = _cut(self.text)
        if self.annotations:
            output["annotations"] = [each.to_json() for each in self.annotations[:ANNOTATIONS_LIMIT]]
        return output


def _cut(text: str) -> str:
    if len(text.encode()) <= TEXT_LIMIT:
        return text
    notice = "\n\nThe rest does not fit here."
    whole = text.encode()[: TEXT_LIMIT - len(notice)].decode(errors="ignore")
    return whole.rpartition("\n")[0] + notice
