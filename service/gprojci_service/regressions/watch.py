"""From steps to regressions: which one is new, which is known, which is over, which came back.

A regression is a cause, so steps of several series at about the same commit are one regression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy.orm import Session

from gprojci_service.models import Commit, Project, Regression, RegressionSeries
from gprojci_service.regressions import curves, repository, service
from gprojci_service.regressions.curves import Branch, Curve
from gprojci_service.regressions.steps import Step

SAME_STEP = 10
"""Commits that the estimate of a step may move by and still be that step."""
SAME_CAUSE = 2
"""Commits that the steps of two series may lie apart and still have one cause."""
RECENT = 40
"""Commits since a step was found after which it opens nothing any more: it is history."""
COMES_BACK = 50
"""Commits after a repair within which a step up to the old level is the old regression."""
STILL = 5
"""Commits after a repair by hand that must show that it is none."""


@dataclass
class _Look:
    """One look at a project, with what is known of it before."""

    session: Session
    project: Project
    branch: Branch
    rank: dict[int, int]
    entries: list[RegressionSeries]

    def regression(self, entry: RegressionSeries) -> Regression:
        return self.session.get_one(Regression, entry.regression_id)

    def rank_of_sha(self, sha: str | None) -> int | None:
        return next((self.rank[one.id] for one in self.branch.commits if one.sha == sha), None)


def look(session: Session, project_id: int) -> None:
    """Looks at every curve of a project's default branch; called again without new values it changes nothing."""
    project = repository.locked_project(session, project_id)
    if project is None:
        return
    branch = curves.branch(session, project)
    entries = list(repository.entries_of_project(session, project_id))
    view = _Look(session, project, branch, branch.rank(), entries)
    opened: list[Regression] = []
    for curve, steps in branch.curves:
        opened += _reconcile(view, curve, steps)
    for regression in repository.open_of_project(session, project_id):
        _close_if_over(view, regression)
    for regression in dict.fromkeys(opened):
        service.tell(session, regression, f"regression.{'reopened' if regression.state == 'reopened' else 'opened'}")


def _reconcile(view: _Look, curve: Curve, steps: Sequence[Step]) -> list[Regression]:
    """Brings the entries of one series up to its steps; returns the regressions that began with it."""
    own = [entry for entry in view.entries if entry.series_id == curve.series.id]
    worse = [step for step in steps if step.after > step.before]
    known = _known(view, own, curve, worse)
    opened: list[Regression] = []
    for step in worse:
        entry = known.get(step.index)
        if entry is not None:
            _update(view, entry, curve, step)
        elif step.found >= len(curve.points) - RECENT and not _undone(step, steps):
            opened += _begin(view, own, curve, step)
    for entry in own:
        _recover(view, entry, curve, steps)
    return opened


def _undone(step: Step, steps: Sequence[Step]) -> bool:
    """Whether the series has stepped back already, at least half way: that needs nobody."""
    half_way = (step.before + step.after) / 2
    return any(later.index > step.index and later.after < later.before and later.after <= half_way for later in steps)


def _known(
    view: _Look, own: Sequence[RegressionSeries], curve: Curve, steps: Sequence[Step]
) -> dict[int, RegressionSeries]:
    """The entry that is about each step, by the step's index: the nearest pairs first, each entry for one step."""
    pairs = sorted(
        (abs(view.rank[entry.first_bad_id] - view.rank[curve.commits[step.index].id]), step.index, entry.id)
        for step in steps
        for entry in own
        if entry.first_bad_id in view.rank
    )
    by_id = {entry.id: entry for entry in own}
    known: dict[int, RegressionSeries] = {}
    for distance, index, entry_id in pairs:
        if distance <= SAME_STEP and index not in known and entry_id in by_id:
            known[index] = by_id.pop(entry_id)
    return known


def _update(view: _Look, entry: RegressionSeries, curve: Curve, step: Step) -> None:
    """Takes over what the step is known to be now; commits measured between narrow its range."""
    first_bad, last_good = curve.commits[step.index], _last_good(curve, step)
    good_id = last_good.id if last_good else None
    moved = (entry.last_good_id, entry.first_bad_id) != (good_id, first_bad.id)
    entry.before, entry.after, entry.noise = math.exp(step.before), math.exp(step.after), step.noise
    if moved:
        entry.last_good_id, entry.first_bad_id = good_id, first_bad.id
        view.session.flush()
        _set_range(view, view.regression(entry), curve.jobs[step.index])


def _last_good(curve: Curve, step: Step) -> Commit | None:
    return curve.commits[step.index - 1] if step.index else None


def _set_range(view: _Look, regression: Regression, job_id: int) -> None:
    """The range of a regression is the narrowest that its series leave: from their last good to their first bad.
    Where only some of them came back it is theirs."""
    entries = repository.entries_of(view.session, regression.id)
    entries = [entry for entry in entries if entry.recovered_by_sha is None] or list(entries)
    bads = [entry.first_bad_id for entry in entries if entry.first_bad_id in view.rank]
    if not bads:
        return
    bad = min(bads, key=view.rank.__getitem__)
    goods = [
        entry.last_good_id
        for entry in entries
        if view.rank.get(entry.last_good_id or 0, len(view.rank)) < view.rank[bad]
    ]
    good = max((one for one in goods if one is not None), key=view.rank.__getitem__, default=None)
    if (regression.last_good_id, regression.first_bad_id) == (good, bad):
        return
    if regression.first_bad_id != bad:
        regression.job_id = job_id
    regression.last_good_id, regression.first_bad_id = good, bad
    service.note(
        view.session, regression, "range", author=service.SERVICE, text=service.range_of(view.session, regression)
    )


def _begin(view: _Look, own: Sequence[RegressionSeries], curve: Curve, step: Step) -> list[Regression]:
    """A step that nobody knew: one that came back, one of a known cause, or the first of a new one."""
    entry = _comes_back(view, own, curve, step)
    if entry is not None:
        entry.recovered_by_sha = None
        view.session.flush()
        _update(view, entry, curve, step)
        regression = view.regression(entry)
        if regression.state != "fixed":
            return []
        service.reopen(view.session, regression, "the series is up there again")
        return [regression]
    first_bad, last_good = curve.commits[step.index], _last_good(curve, step)
    known = _same_cause(view, first_bad)
    regression = known or service.begin(view.session, view.project.id, first_bad, last_good, curve.jobs[step.index])
    made = RegressionSeries(
        regression_id=regression.id,
        series_id=curve.series.id,
        last_good_id=last_good.id if last_good else None,
        first_bad_id=first_bad.id,
        before=math.exp(step.before),
        after=math.exp(step.after),
        noise=step.noise,
    )
    service.add_series(view.session, regression, made, curve.series)
    view.entries.append(made)
    if known is None:
        return [regression]
    _set_range(view, regression, curve.jobs[step.index])
    return []


def _comes_back(view: _Look, own: Sequence[RegressionSeries], curve: Curve, step: Step) -> RegressionSeries | None:
    """The newest entry that was over and whose level the step goes back up to, at least half way."""
    place = view.rank[curve.commits[step.index].id]
    for entry in reversed(own):
        repaired = view.rank_of_sha(entry.recovered_by_sha)
        if repaired is None or entry.before is None or not repaired <= place <= repaired + COMES_BACK:
            continue
        if step.after >= _half_way(entry):
            return entry
    return None


def _half_way(entry: RegressionSeries) -> float:
    assert entry.before is not None
    return (math.log(entry.before) + math.log(entry.after)) / 2


def _same_cause(view: _Look, first_bad: Commit) -> Regression | None:
    place = view.rank[first_bad.id]
    for regression in repository.open_of_project(view.session, view.project.id):
        at = view.rank.get(regression.first_bad_id)
        if at is not None and abs(at - place) <= SAME_CAUSE:
            return regression
    return None


def _recover(view: _Look, entry: RegressionSeries, curve: Curve, steps: Sequence[Step]) -> None:
    """An entry is over where its series steps back down, at least half way."""
    at = view.rank.get(entry.first_bad_id)
    if entry.recovered_by_sha is not None or entry.before is None or at is None:
        return
    for step in steps:
        commit = curve.commits[step.index]
        if step.after < step.before and view.rank[commit.id] > at and step.after <= _half_way(entry):
            entry.recovered_by_sha = commit.sha
            return
    regression = view.regression(entry)
    repaired = view.rank_of_sha(regression.fixed_by_sha) if regression.state == "fixed" else None
    if repaired is None:
        return
    since = [
        point.value
        for commit, point in zip(curve.commits, curve.points, strict=True)
        if view.rank[commit.id] >= repaired
    ]
    if len(since) >= STILL and median(since) > _half_way(entry):
        text = f"{len(since)} commits from {str(regression.fixed_by_sha)[:10]} on are as bad as before it"
        service.reopen(view.session, regression, text)
        service.tell(view.session, regression, "regression.reopened")


def _close_if_over(view: _Look, regression: Regression) -> None:
    """A regression is fixed once all its series have recovered, by the commit at which the last of them did."""
    shas = [entry.recovered_by_sha for entry in repository.entries_of(view.session, regression.id)]
    if not shas or not all(shas):
        return
    last = max(shas, key=lambda sha: view.rank_of_sha(sha) or -1)
    service.enter(view.session, regression, "fixed", author=service.SERVICE, text=None, sha=last)
