"""Verdicts as an Atom feed (RFC 4287)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree import ElementTree

ATOM = "http://www.w3.org/2005/Atom"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Entry:
    """One verdict; `address` is what it is known by."""

    address: str
    title: str
    summary: str
    author: str
    updated: datetime


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _add(parent: ElementTree.Element, name: str, text: str = "", **attributes: str) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, name, attributes)
    element.text = _NOT_XML.sub("", text) or None
    return element


def atom(title: str, address: str, page: str, updated: datetime, entries: Iterable[Entry]) -> bytes:
    """The feed at `address`, of the page `page`; `updated` counts while there is no entry."""
    entries = list(entries)
    root = ElementTree.Element("feed", {"xmlns": ATOM})
    _add(root, "id", address)
    _add(root, "title", title)
    _add(root, "updated", _time(max((entry.updated for entry in entries), default=updated)))
    _add(root, "link", rel="self", href=address, type="application/atom+xml")
    _add(root, "link", rel="alternate", href=page, type="text/html")
    _add(_add(root, "author"), "name", "GProj CI")
    _add(root, "generator", "GProj CI")
    for entry in entries:
        item = _add(root, "entry")
        _add(item, "id", entry.address)
        _add(item, "title", entry.title)
        _add(item, "updated", _time(entry.updated))
        _add(item, "link", rel="alternate", href=entry.address, type="text/html")
        if entry.author:
            _add(_add(item, "author"), "name", entry.author)
        _add(item, "summary", entry.summary)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text
