"""Decisions about regressions: one per step of a series, closed by the commit that repairs it, triaged by people."""

from __future__ import annotations

from sqlalchemy.orm import Session

from gprojci_service.errors import InvalidRequest, RegressionNotFound
from gprojci_service.models import Commit, Job, Regression, Series, Verdict
from gprojci_service.regressions import repository
from gprojci_service.regressions.schemas import Triage


class ReasonMissing(InvalidRequest):
    """Ignoring a regression needs a reason."""


def note(
    session: Session,
    job: Job,
    verdict: Verdict,
    commit: Commit,
    series: Series,
    *,
    failed: bool,
    value: float,
    limit: float,
) -> None:
    """Opens a regression where a series of the default branch broke its limit, or marks the open ones as fixed.

    A series that is broken already gets no second regression: one step, one entry.
    """
    if job.kind != "push":
        return
    known = repository.open_of_series(session, series.id)
    if failed and not known:
        session.add(
            Regression(
                project_id=job.project_id,
                series_id=series.id,
                commit_id=commit.id,
                verdict_id=verdict.id,
                value=value,
                limit=limit,
            )
        )
    elif not failed:
        for regression in known:
            regression.state, regression.fixed_by_sha = "fixed", commit.sha


def triage(session: Session, regression_id: int, body: Triage) -> Regression:
    """Sets the state that somebody decided on.

    Raises:
        RegressionNotFound: there is none of that number.
        ReasonMissing: it is to be ignored without a reason.
    """
    regression = repository.by_id(session, regression_id)
    if regression is None:
        raise RegressionNotFound(f"no regression {regression_id}")
    if body.state == "ignored" and not (body.reason or "").strip():
        raise ReasonMissing("say in `reason` why this regression is to be ignored")
    regression.state, regression.reason = body.state, body.reason
    return regression
