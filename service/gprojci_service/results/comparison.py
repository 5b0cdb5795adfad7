"""Compares two commits or jobs: every metric at both, what matters most first.

The verdicts here describe, the gate decides. An error is worse or better when it moved by more than 5%; errors of the
same build vary far less between runs. A time is worse or better when the interval of its paired ratio leaves out 1, and
unclear where it does not or where the commits were measured in different sessions and no interval is known.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gprojci_service.errors import Conflict
from gprojci_service.models import Commit, Job, Project, Report
from gprojci_service.projects import repository as projects
from gprojci_service.results import repository
from gprojci_service.results import service as results
from gprojci_service.results.excerpts import Cut
from gprojci_suite.contract.report import Report as SuiteReport

MOVED = 1.05
_WEIGHTS = {"dq": 1.0, "dk": 1.0, "dv": 0.8, "o": 0.8}
_RANK = {"worse": 0, "better": 1, "unclear": 2, "same": 3}

_SUBJECTS = ("head", "base")
_COMPARED = Cut(
    summary={"revision": _SUBJECTS}, measurements={"revision": _SUBJECTS}, comparisons={"against_revision": _SUBJECTS}
)

Source = tuple[Report, str]
"""A result, and the revision that a commit has in it: head or base."""


class CannotCompare(Conflict):
    """Two commits cannot be compared; the message says why."""


@dataclass(frozen=True)
class Change:
    """One metric at both commits; `change` is head ÷ base, verdict worse, better, same or unclear."""

    verdict: str
    metric: str
    unit: str
    backend: str
    case: str
    base: float
    head: float
    change: float
    low: float | None
    high: float | None
    weight: float


@dataclass(frozen=True)
class Comparison:
    """Two results beside each other, the base's first."""

    base: str
    """Full SHA."""
    head: str
    sources: tuple[Source, Source]
    bodies: tuple[SuiteReport, SuiteReport]
    """What the reports say as far as it is compared: the subjects alone, without slices."""
    changes: tuple[Change, ...]
    same_session: bool

    @property
    def warning(self) -> str:
        """What makes the two hard to compare, in words; empty where nothing does."""
        found = []
        if len({body.environment.hardware for body in self.bodies}) > 1:
            found.append("They ran on different hardware, so no time is compared.")
        if len({body.ruler.revision for body in self.bodies}) > 1:
            found.append("The rulers differ.")
        return " ".join(found)

    def count(self, verdict: str) -> int:
        """How many changes are of a verdict."""
        return sum(change.verdict == verdict for change in self.changes)


def of_commits(session: Session, project: Project, base: str, head: str) -> Comparison:
    """Two commits by the beginning of their SHAs: their newest common session, else the newest result of each.

    Raises:
        CannotCompare: a commit is not named clearly, or has no result.
    """
    older, newer = _commit(session, project, base, "base"), _commit(session, project, head, "head")
    together = repository.newest_report_of(session, project.id, newer.sha, older.sha)
    if together is not None:
        return _compared(session, older.sha, newer.sha, ((together, "base"), (together, "head")))
    sources = (_source(session, project, older, "base"), _source(session, project, newer, "head"))
    return _compared(session, older.sha, newer.sha, sources)


def of_jobs(session: Session, base: int, head: int) -> Comparison:
    """The heads of two jobs, as each measured its own.

    Raises:
        ReportNotFound: one of them has no result.
        CannotCompare: they are of different projects.
    """
    reports = [results.accepted_report(session, number) for number in (base, head)]
    of = [session.get_one(Job, report.job_id) for report in reports]
    if of[0].project_id != of[1].project_id:
        raise CannotCompare(f"jobs {base} and {head} are of different projects")
    return _compared(session, of[0].head_sha, of[1].head_sha, ((reports[0], "head"), (reports[1], "head")))


def _compared(session: Session, base: str, head: str, sources: tuple[Source, Source]) -> Comparison:
    together = sources[0][0] is sources[1][0] and (sources[0][1], sources[1][1]) == ("base", "head")
    newer = results.read_part(session, sources[1][0], _COMPARED)
    bodies = (newer if together else results.read_part(session, sources[0][0], _COMPARED), newer)
    changes = _accuracy(bodies, sources) + _memory(bodies, sources)
    changes += _paired(bodies[1]) if together else _anchored(session, sources)
    changes.sort(key=lambda change: (_RANK[change.verdict], -change.weight))
    return Comparison(base, head, sources, bodies, tuple(changes), together)


def _commit(session: Session, project: Project, text: str, which: str) -> Commit:
    if not re.fullmatch(r"[0-9a-f]{4,40}", text):
        raise CannotCompare(f"Give the {which} commit as 4 to 40 hexadecimal digits of its SHA.", field=which)
    found = projects.commits_by_prefix(session, project.id, text)
    if not found:
        raise CannotCompare(f"No commit known here begins with {text}.", field=which)
    if len(found) > 1:
        raise CannotCompare(f"More than one commit begins with {text}; give more digits.", field=which)
    return found[0]


def _source(session: Session, project: Project, commit: Commit, which: str) -> Source:
    """The newest result of a commit and the revision it has there."""
    report = repository.newest_report_of(session, project.id, commit.sha)
    if report is not None:
        return report, "head"
    report = repository.newest_report_with_base(session, project.id, commit.sha)
    if report is None:
        raise CannotCompare(f"Commit {commit.sha[:8]} has no result (yet).", field=which)
    return report, "base"


def _accuracy(bodies: tuple[SuiteReport, SuiteReport], sources: tuple[Source, Source]) -> list[Change]:
    sides = []
    for body, (_, revision) in zip(bodies, sources, strict=True):
        lines = body.accuracy.summary if body.accuracy else ()
        sides.append({(line.backend, line.input, line.tensor): line for line in lines if line.revision == revision})
    rows = []
    for key, after in sides[1].items():
        before = sides[0].get(key)
        if before is None:
            continue
        for name, old, new, share in (
            (f"{key[2]}_error", before.median, after.median, 1.0),
            (f"{key[2]}_error_worst", before.worst, after.worst, 0.6),
        ):
            if not (math.isfinite(old) and old > 0 and new > 0):
                continue
            change = new / old
            verdict = "worse" if change > MOVED else "better" if change < 1 / MOVED else "same"
            distance = abs(math.log(change)) if math.isfinite(change) else 100.0
            weight = distance * _WEIGHTS[key[2]] * share
            rows.append(Change(verdict, name, "fraction", key[0], key[1], old, new, change, None, None, weight))
    return rows


def _memory(bodies: tuple[SuiteReport, SuiteReport], sources: tuple[Source, Source]) -> list[Change]:
    before, after = (
        {(name, case): peak for (name, of, case), peak in body.peak_memory().items() if of == revision}
        for body, (_, revision) in zip(bodies, sources, strict=True)
    )
    rows = []
    for (name, case), new in after.items():
        old = before.get((name, case))
        if old is not None:
            change = new / old
            verdict = "worse" if change > MOVED else "better" if change < 1 / MOVED else "same"
            weight = abs(math.log(change)) * 2
            rows.append(Change(verdict, "peak_memory", "bytes", name, case, old, new, change, None, None, weight))
    return rows


def _paired(body: SuiteReport) -> list[Change]:
    if body.throughput is None:
        return []
    medians = {
        (item.backend, item.revision, item.case, item.pass_): item.median_seconds
        for item in body.throughput.measurements
    }
    rows = []
    for item in body.throughput.comparisons:
        if (
            (item.revision, item.against_revision) != ("head", "base")
            or item.backend != item.against_backend
            or item.control
        ):
            continue
        old = medians.get((item.backend, "base", item.case, item.pass_))
        new = medians.get((item.backend, "head", item.case, item.pass_))
        if old is None or new is None:
            continue
        verdict = "worse" if item.low > 1 else "better" if item.high < 1 else "unclear"
        weight = abs(math.log(item.ratio)) * 3
        name = f"{item.pass_}_seconds"
        rows.append(
            Change(verdict, name, "seconds", item.backend, item.case, old, new, item.ratio, item.low, item.high, weight)
        )
    return rows


def _anchored(session: Session, sources: tuple[Source, Source]) -> list[Change]:
    """Times of different sessions: only the ratios to the anchor, and only within one hardware class and ruler."""
    before = {item.series_id: item.value for item in _ratios(session, sources[0])}
    rows = []
    for item in _ratios(session, sources[1]):
        if item.series_id in before:
            old, new = before[item.series_id], item.value
            change, weight = new / old, abs(math.log(new / old)) * 2
            where = ("ratio", item.backend, item.case)
            rows.append(Change("unclear", item.metric, *where, old, new, change, None, None, weight))
    return rows


def _ratios(session: Session, source: Source) -> list[repository.Ratio]:
    report, revision = source
    return repository.ratios_of_report(session, report.id, revision)
