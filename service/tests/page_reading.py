"""What tests read of a page: its structure, its charts, its words."""

from __future__ import annotations

import html
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

sys.path.insert(0, str(Path(__file__).parent))


class Outline(HTMLParser):
    """What a reader of the page's structure sees: landmarks, tables, scripts, duplicate ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def figures(text: str) -> list[dict[str, Any]]:
    """The plotly figures embedded in a page."""
    return [
        json.loads(block) for block in re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    ]


def section(text: str, name: str) -> str:
    """A panel of a page, by the id of its heading."""
    start = text.index(f'<section class="panel" aria-labelledby="{name}">')
    return text[start : text.index("</section>", start)]


def words_of(text: str) -> str:
    """What is read of a piece of markup, chart data left out."""
    plain = re.sub(r"<script.*?</script>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plain)).split())


def turned(client: TestClient, address: str, onward: str, keeps: str) -> list[str]:
    """The pages of a long list, turned to the end by the button that begins with `onward`, a pattern.

    The address of each further page must keep what was chosen.
    """
    pages = []
    while address:
        pages.append(client.get(address).text)
        found = re.search(rf'<a class="button" href="([^"]+)">(?:{onward})', pages[-1])
        address = html.unescape(found.group(1)) if found else ""
        assert not address or keeps in address
    return pages
