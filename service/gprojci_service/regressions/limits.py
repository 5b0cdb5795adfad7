"""From limits that the default branch broke to regressions: known at once, with no history to compare with.

What a pull request breaks is its gate's business and opens none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gprojci_service.models import Commit, Job, Project, Regression, RegressionSeries, Series
from gprojci_service.projects import repository as projects
from gprojci_service.projects.ancestry import moment_of
from gprojci_service.regressions import repository, service

Known = tuple[RegressionSeries, Regression]


@dataclass(frozen=True)
class LimitFinding:
    """A limit of the gate held against a series."""

    series_id: int
    failed: bool
    value: float
    limit: float


def note_limits(session: Session, job: Job, commit: Commit, findings: Sequence[LimitFinding]) -> None:
    """Opens one regression for what a commit broke, once, and closes those whose limits a later commit keeps again."""
    project = session.get_one(Project, job.project_id)
    if not on_default_branch(job, project):
        return
    known = repository.entries_of_series(session, {finding.series_id for finding in findings})
    opened = [_note(session, job, commit, finding, known[finding.series_id]) for finding in findings]
    for regression in dict.fromkeys(one for one in opened if one is not None):
        service.tell(session, regression, "regression.opened")


def on_default_branch(job: Job, project: Project) -> bool:
    """Whether a job measured the default branch itself."""
    return job.ref == project.default_branch and job.pull_request_id is None and job.kind != "merge_group"


def _note(session: Session, job: Job, commit: Commit, finding: LimitFinding, known: list[Known]) -> Regression | None:
    """Returns the regression that begins with it; what it adds to its series is added to `known`."""
    bad = [
        (entry, regression)
        for entry, regression in known
        if entry.recovered_by_sha is None and regression.state != "fixed"
    ]
    if finding.failed:
        return None if bad else _break(session, job, commit, finding, known)
    for entry, regression in bad:
        first_bad = repository.commit(session, entry.first_bad_id)
        if entry.limit is not None and first_bad is not None and _is_later(commit, first_bad):
            entry.recovered_by_sha = commit.sha
            if all(one.recovered_by_sha for one in repository.entries_of(session, regression.id)):
                service.enter(session, regression, "fixed", author=service.SERVICE, text=None, sha=commit.sha)
    return None


def _break(
    session: Session, job: Job, commit: Commit, finding: LimitFinding, entries: list[Known]
) -> Regression | None:
    known = next(
        (one for one in repository.open_of_project(session, job.project_id) if one.first_bad_id == commit.id), None
    )
    base = projects.commit(session, job.project_id, job.merge_base_sha) if job.merge_base_sha else None
    regression = known or service.begin(session, job.project_id, commit, base, job.id)
    entry = RegressionSeries(
        regression_id=regression.id,
        series_id=finding.series_id,
        last_good_id=regression.last_good_id,
        first_bad_id=commit.id,
        after=finding.value,
        limit=finding.limit,
    )
    service.add_series(session, regression, entry, session.get_one(Series, finding.series_id))
    entries.append((entry, regression))
    return None if known else regression


def _is_later(commit: Commit, than: Commit) -> bool:
    return commit.id != than.id and moment_of(commit) >= moment_of(than)
