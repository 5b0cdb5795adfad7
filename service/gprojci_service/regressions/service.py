"""Decisions about the life of a regression: which state may follow which, who did it, and what stands in its history.

new → acknowledged, ignored, fixed      ignored → acknowledged, fixed      fixed → reopened
acknowledged → ignored, fixed           reopened → acknowledged, ignored, fixed
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy.orm import Session

from gprojci_service.errors import Conflict, InvalidRequest, RegressionNotFound
from gprojci_service.models import Commit, Project, Regression, RegressionEvent, RegressionSeries, Series, now
from gprojci_service.models.regression import OPEN_REGRESSION_STATES, REGRESSION_STATES
from gprojci_service.notifications import service as notifications
from gprojci_service.projects import repository as project_repository
from gprojci_service.projects import service as projects
from gprojci_service.regressions import repository, wording

TRANSITIONS = {
    "new": ("acknowledged", "ignored", "fixed"),
    "acknowledged": ("ignored", "fixed"),
    "ignored": ("acknowledged", "fixed"),
    "fixed": ("reopened",),
    "reopened": ("acknowledged", "ignored", "fixed"),
}
SERVICE = "gprojci"
"""Author of what nobody did by hand."""


class ReasonMissing(InvalidRequest):
    """Ignoring a regression needs a reason."""

    field = "reason"


class FixMissing(InvalidRequest):
    """A regression is fixed by a commit, which has to be named."""

    field = "commit"


class TransitionForbidden(Conflict):
    """The regression cannot go from its state to that one."""

    field = "state"


def get(session: Session, regression_id: int) -> Regression:
    """Raises:
    RegressionNotFound: there is none of that number.
    """
    return _found(repository.by_id(session, regression_id), regression_id)


def search(
    session: Session, *, project: str | None, states: Sequence[str], owner: str | None, before: int | None, limit: int
) -> Sequence[Regression]:
    """Regressions, newest first.

    Raises:
        ProjectNotFound: there is no project of that name.
        InvalidRequest: there is no such state.
    """
    if project:
        projects.get(session, project)
    for state in states:
        if state not in (*REGRESSION_STATES, "open"):
            known = ", ".join((*REGRESSION_STATES, "open"))
            raise InvalidRequest(f"state {state!r} does not exist; use {known}")
    wanted = [one for state in states for one in (OPEN_REGRESSION_STATES if state == "open" else (state,))]
    return repository.search(session, project=project, states=wanted, owner=owner, before=before, limit=limit)


def change_state(
    session: Session, regression_id: int, state: str, *, author: str, reason: str | None, fixed_by: str | None
) -> Regression:
    """Sets the state that somebody decided on; the present one again only changes the reason.

    Raises:
        RegressionNotFound: there is none of that number.
        TransitionForbidden: no way leads from its state to that one.
        ReasonMissing: it is to be ignored without a reason.
        FixMissing: it is to be fixed, and no commit of the project is named.
    """
    regression = _found(repository.locked(session, regression_id), regression_id)
    said = (reason or "").strip() or None
    if state == "new" or state not in (*TRANSITIONS[regression.state], regression.state):
        ways = " or ".join(TRANSITIONS[regression.state])
        raise TransitionForbidden(
            f"regression {regression_id} is {regression.state} and cannot become {state}; it can become {ways}"
        )
    if state == "ignored" and said is None:
        raise ReasonMissing("say in `reason` why this regression is to be ignored")
    sha = _fixing_commit(session, regression, fixed_by) if state == "fixed" else None
    enter(session, regression, state, author=author, text=said, sha=sha)
    return regression


def _fixing_commit(session: Session, regression: Regression, fixed_by: str | None) -> str:
    if not fixed_by:
        raise FixMissing(
            "name in `commit` the commit that fixes it; one that nobody fixes can be ignored with a reason"
        )
    prefix = fixed_by.lower()
    hexadecimal = re.fullmatch("[0-9a-f]+", prefix)
    found = project_repository.commits_by_prefix(session, regression.project_id, prefix) if hexadecimal else ()
    if len(found) != 1:
        problem = "is ambiguous; give more digits" if found else "is not known here; give one that a job was about"
        raise FixMissing(f"commit {fixed_by} {problem}")
    return found[0].sha


def enter(
    session: Session, regression: Regression, state: str, *, author: str, text: str | None, sha: str | None = None
) -> None:
    """Puts a regression into a state, notes it, and tells the channels of what they cannot know."""
    before = regression.state
    regression.state, regression.reason, regression.fixed_by_sha = state, text, sha
    shown = f"by {sha[:10]}" + (f": {text}" if text else "") if sha else text
    note(session, regression, "state", author=author, before=before, after=state, text=shown)
    if state in ("fixed", "reopened") and before != state:
        tell(session, regression, f"regression.{state}")


def reopen(session: Session, regression: Regression, why: str) -> None:
    """Opens a fixed regression again, as the service found; the caller tells the channels once it knows the series."""
    before, regression.state, regression.fixed_by_sha, regression.reason = regression.state, "reopened", None, why
    note(session, regression, "state", author=SERVICE, before=before, after="reopened", text=why)


def begin(session: Session, project_id: int, first_bad: Commit, last_good: Commit | None, job_id: int) -> Regression:
    """A new regression; the caller adds its series, then tells the channels."""
    regression = Regression(
        project_id=project_id,
        first_bad_id=first_bad.id,
        last_good_id=last_good.id if last_good else None,
        job_id=job_id,
    )
    session.add(regression)
    session.flush()
    note(session, regression, "opened", author=SERVICE, after="new", text=range_of(session, regression))
    return regression


def add_series(session: Session, regression: Regression, entry: RegressionSeries, series: Series) -> None:
    """Adds a series that a regression shows in."""
    session.add(entry)
    session.flush()
    note(session, regression, "series", author=SERVICE, text=f"{wording.name(series)} {wording.amount(entry)}")


def range_of(session: Session, regression: Regression) -> str:
    """Its commits as git reads them, short: `good..bad`."""
    good, bad = (_sha(repository.commit(session, one)) for one in (regression.last_good_id, regression.first_bad_id))
    return f"{good[:10] if good else '…'}..{bad[:10] if bad else '…'}"


def comment(session: Session, regression_id: int, text: str, *, author: str) -> RegressionEvent:
    """Adds what somebody has to say.

    Raises:
        RegressionNotFound: there is none of that number.
        InvalidRequest: there is nothing in it.
    """
    if not text.strip():
        raise InvalidRequest("text: an empty comment says nothing", field="text")
    return note(session, get(session, regression_id), "comment", author=author, text=text.strip())


def assign(session: Session, regression_id: int, owner: str | None, *, author: str) -> Regression:
    """Sets who looks after it; None is nobody.

    Raises:
        RegressionNotFound: there is none of that number.
    """
    regression = _found(repository.locked(session, regression_id), regression_id)
    name = (owner or "").strip() or None
    if name != regression.owner:
        note(session, regression, "owner", author=author, before=regression.owner, after=name)
        regression.owner = name
    return regression


def note(
    session: Session,
    regression: Regression,
    kind: str,
    *,
    author: str,
    before: str | None = None,
    after: str | None = None,
    text: str | None = None,
) -> RegressionEvent:
    """Adds a line to the history."""
    event = RegressionEvent(
        regression_id=regression.id, kind=kind, author=author, before=before, after=after, text=text
    )
    session.add(event)
    regression.updated_at = now()
    session.flush()
    return event


def tell(session: Session, regression: Regression, event: str) -> None:
    """Has the project's channels told of a regression."""
    project = session.get_one(Project, regression.project_id)
    shown = repository.series_of(session, regression.id)
    facts = {
        "regression_id": regression.id,
        "state": regression.state,
        "last_good": _sha(repository.commit(session, regression.last_good_id)),
        "first_bad": _sha(repository.commit(session, regression.first_bad_id)),
        "fixed_by": regression.fixed_by_sha,
        "owner": regression.owner,
        "series": [wording.facts(entry, series) for entry, series in shown],
    }
    notifications.publish(
        session,
        project,
        event,
        severity=wording.severity(event, [entry for entry, _ in shown]),
        title=f"Regression {regression.id} {event.partition('.')[2]}: {wording.summary(shown)}",
        path=f"/regressions/{regression.id}",
        facts=facts,
    )


def _sha(commit: Commit | None) -> str | None:
    return None if commit is None else commit.sha


def _found(regression: Regression | None, regression_id: int) -> Regression:
    if regression is None:
        raise RegressionNotFound(f"no regression {regression_id}; `gprojci regression list` shows them")
    return regression
