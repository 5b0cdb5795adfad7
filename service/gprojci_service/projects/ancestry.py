"""In which order the commits of a branch came."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gprojci_service.models import Commit


def moment_of(commit: Commit) -> datetime:
    """When it was written, as far as that is known."""
    return commit.authored_at or commit.created_at


def in_order(commits: Iterable[Commit]) -> list[Commit]:
    """Commits oldest first: by time, and a first parent always before its child, whatever their clocks say."""
    by_time = sorted(commits, key=lambda commit: (moment_of(commit), commit.id))
    known = {commit.sha: commit for commit in by_time}
    ordered: dict[str, Commit] = {}
    for commit in by_time:
        line: list[Commit] = []
        at: Commit | None = commit
        while at is not None and at.sha not in ordered and at not in line:
            line.append(at)
            at = known.get(at.parents[0]) if at.parents else None
        ordered.update((one.sha, one) for one in reversed(line))
    return list(ordered.values())
