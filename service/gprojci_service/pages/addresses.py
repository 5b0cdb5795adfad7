"""Addresses of lists: what is chosen stands in them, but for what is chosen where nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode


def address(path: str, choices: Mapping[str, str], page: int = 1, *, default: Mapping[str, str] | None = None) -> str:
    """The address of a page of a list; `default` has the choices that go without saying."""
    unsaid = default or {}
    query = {key: value for key, value in choices.items() if value and value != unsaid.get(key)}
    query |= {"page": str(page)} if page > 1 else {}
    return f"{path}?{urlencode(query)}" if query else path
