"""In which order the commits of a branch came."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar


class Committed(Protocol):
    """What is asked of a commit, whole or only these of it."""

    @property
    def id(self) -> int: ...
    @property
    def sha(self) -> str: ...
    @property
    def parents(self) -> list[Any] | None: ...
    @property
    def authored_at(self) -> datetime | None: ...
    @property
    def created_at(self) -> datetime: ...


C = TypeVar("C", bound=Committed)


def moment_of(commit: Committed) -> datetime:
    """When it was written, as far as that is known."""
    return commit.authored_at or commit.created_at


def in_order(commits: Iterable[C]) -> list[C]:
    """Commits oldest first: by time, and a first parent always before its child, whatever their clocks say."""
    by_time = sorted(commits, key=lambda commit: (moment_of(commit), commit.id))
    known = {commit.sha: commit for commit in by_time}
    ordered: dict[str, C] = {}
    for commit in by_time:
        line: list[C] = []
        at: C | None = commit
        while at is not None and at.sha not in ordered and at not in line:
            line.append(at)
            at = known.get(at.parents[0]) if at.parents else None
        ordered.update((one.sha, one) for one in reversed(line))
    return list(ordered.values())
