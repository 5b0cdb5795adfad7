"""What passes between the outbox and the clients: a report that is due, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Kind = Literal["commit_status", "check_run", "comment", "reaction"]


@dataclass(frozen=True)
class Outgoing:
    """A report that is due. `payload` is the whole state to be shown, so each one can stand for those before it."""

    kind: Kind
    repository: str
    """Full name, `owner/name`."""
    path: str
    """Where such a thing is created, below the API's base URL: `/repos/…`."""
    payload: dict[str, Any]
    check_run_id: int | None = None
    """The job's check run, where GitHub has said its number."""
    may_exist: bool = False
    """Whether an earlier try to create the check run or the comment may have reached GitHub although no answer came."""
    comment_id: int | None = None
    """Our comment on the pull request, where GitHub has said its number."""


@dataclass(frozen=True)
class Answer:
    """What became of a report: sent; recorded (kept here only); again (a passing fault); refused (final)."""

    outcome: Literal["sent", "recorded", "again", "refused"]
    detail: str
    not_before: datetime | None = None
    """With `again`: when GitHub allows the next request."""
    check_run_id: int | None = None
    comment_id: int | None = None
