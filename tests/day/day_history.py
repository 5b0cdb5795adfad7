"""The small history of the day: commits, each with how exact and how fast its kernel is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Kernel:
    """What measuring a commit finds, but for the noise of a session."""

    dq_error: float = 0.002
    """Median relative Frobenius error of dQ on late-keybias, a fraction."""
    over_anchor: float = 1.30
    """Time of forward and backward over the anchor's."""


@dataclass(frozen=True)
class Commit:
    """A commit, first parent first."""

    message: str
    parents: tuple[str, ...]
    kernel: Kernel
    moment: datetime

    @property
    def sha(self) -> str:
        """By its message and parents, so that every run has the same."""
        return hashlib.sha1("\n".join((self.message, *self.parents)).encode()).hexdigest()


class History:
    """The commits of a repository and its branches, merge groups' among them."""

    def __init__(self) -> None:
        self.commits: dict[str, Commit] = {}
        self.branches: dict[str, str] = {}

    def add(self, branch: str, commit: Commit) -> Commit:
        """Makes a commit the head of a branch."""
        self.commits[commit.sha] = commit
        self.branches[branch] = commit.sha
        return commit

    def first_parents(self, branch: str) -> list[str]:
        """`git rev-list --first-parent --reverse`."""
        line = [self.branches[branch]]
        while parents := self.commits[line[-1]].parents:
            line.append(parents[0])
        return line[::-1]

    def merge_base(self, head: str, base: str) -> str:
        """The newest first-parent ancestor of `base` that `head` has in its history."""
        known, waiting = set(), [head]
        while waiting:
            sha = waiting.pop()
            if sha not in known:
                known.add(sha)
                waiting += self.commits[sha].parents
        at = base
        while at not in known:
            at = self.commits[at].parents[0]
        return at
