"""How an attempt can fail: a kind from the service's list, and the words for it."""

from __future__ import annotations


class AttemptFailed(Exception):
    """The attempt ends with this failure kind; the detail is what a person needs to see of it."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class AttemptCancelled(Exception):
    """The service no longer wants this attempt: its job was cancelled, or its lease is lost."""
