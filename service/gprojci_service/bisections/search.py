"""The search for the first bad commit, apart from jobs and reports: what is known so far, and what is measured next.

Positions count along first parents: 0 is the good commit, the last one the bad commit. As with `git bisect` the history
is taken to be good up to one commit and bad from it on, and commits that cannot be tested are gone around; what cannot
be decided then stays as a range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Word = Literal["good", "bad", "unsure", "skipped"]


@dataclass(frozen=True)
class Finding:
    """What one measurement said of one commit."""

    position: int
    word: Word
    effort: int = 1
    """How many times the manifest's pairs were measured."""
    job_id: int | None = None
    reused: bool = False
    """Whether the job had been made for something else."""
    ratio: float | None = None
    """The metric over the good commit's; None where it is not finite, or was not measured."""
    low: float | None = None
    high: float | None = None
    reason: str = ""
    """Why it is skipped, or what decided it beside the interval."""
    build_key: str | None = None
    """Key of the commit's build: the same key is the same code."""

    def to_json(self) -> dict[str, Any]:
        """As the database keeps it."""
        return asdict(self)


@dataclass(frozen=True)
class Measure:
    """Measure a commit, its pairs `effort` times as many as the manifest says."""

    position: int
    effort: int


@dataclass(frozen=True)
class Conclude:
    """The first bad commit is one of `first` to `last`: one commit, or a range of which nothing more can be told."""

    first: int
    last: int


@dataclass(frozen=True)
class NotWorse:
    """The bad commit is not worse than the good one, or it cannot be told or measured: there is nothing to find."""

    finding: Finding


def next_step(commits: int, findings: Iterable[Finding], max_effort: int) -> Measure | Conclude | NotWorse:
    """What is to be done next.

    The bad commit comes first. Then the middle of the longest run of commits that are neither measured nor given up,
    which is the middle of all where none was given up, and keeps away from those that were, as `git bisect skip` does.
    An unsure commit is measured again with twice the pairs, up to `max_effort` times those of the manifest.

    Args:
        commits: how many there are, the good and the bad one included; at least two.
        findings: what was measured, in that order; the newest of a commit counts.
    """
    known = {finding.position: finding for finding in findings}
    newest = next(reversed(known.values()), None)
    unsure = next((known[position] for position in known if _again(known[position], max_effort)), None)
    if unsure is not None:
        return Measure(unsure.position, unsure.effort * 2)
    end = known.get(commits - 1)
    if newest is None or end is None:
        return Measure(commits - 1, 1)
    if end.word != "bad":
        return NotWorse(end)
    good, bad = bracket(commits, known.values())
    runs = _runs([position for position in range(good + 1, bad) if position not in known])
    if not runs:
        return Conclude(good + 1, bad)
    longest = max(runs, key=len)
    return Measure(longest[len(longest) // 2], 1)


def bracket(commits: int, findings: Iterable[Finding]) -> tuple[int, int]:
    """The last commit known to be good and the first one after it known to be bad."""
    words = {finding.position: finding.word for finding in findings}
    good = max((position for position, word in words.items() if word == "good"), default=0)
    bad = min((position for position, word in words.items() if word == "bad" and position > good), default=commits - 1)
    return good, bad


def _again(finding: Finding, max_effort: int) -> bool:
    return finding.word == "unsure" and finding.effort * 2 <= max_effort


def _runs(positions: list[int]) -> list[list[int]]:
    """Positions in ascending order, cut where one is missing."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][-1] == position - 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs
