"""HTTP: regressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from sqlalchemy.orm import Session

from gprojci_service.access.service import SessionDep, require_read, require_write
from gprojci_service.identifier import RowId
from gprojci_service.models import Project, Regression, RegressionEvent, RegressionSeries, Series, Token
from gprojci_service.regressions import repository, service, wording
from gprojci_service.regressions.schemas import (
    Comment,
    EventOut,
    Owner,
    RegressionDetail,
    RegressionOut,
    SeriesOut,
    StateChange,
)

router = APIRouter(prefix="/regressions", tags=["regressions"])
READ = [Depends(require_read, scope="function")]
Writer = Annotated[Token, Depends(require_write, scope="function")]


@router.get("", dependencies=READ)
def list_regressions(
    session: SessionDep,
    project: str | None = None,
    state: Annotated[
        list[str] | None, Query(description="May be given more than once; `open` is all but the closed.")
    ] = None,
    owner: str | None = None,
    before: Annotated[int | None, Query(ge=1)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> list[RegressionOut]:
    """Regressions, newest first; `before` is the number to page on from."""
    found = service.search(session, project=project, states=state or (), owner=owner, before=before, limit=limit)
    return _all_shown(session, found)


@router.get("/{regression_id}", dependencies=READ)
def get_regression(session: SessionDep, regression_id: RowId) -> RegressionDetail:
    """One regression with its history."""
    regression = service.get(session, regression_id)
    events = [EventOut.model_validate(one) for one in repository.events_of(session, regression_id)]
    return RegressionDetail(**_shown(session, regression).model_dump(), events=events)


@router.post("/{regression_id}/state")
def change_state(session: SessionDep, regression_id: RowId, body: StateChange, writer: Writer) -> RegressionOut:
    """Acknowledges it, ignores it with a reason, calls it fixed by a commit, or opens it again."""
    done = service.change_state(
        session, regression_id, body.state, author=writer.name, reason=body.reason, fixed_by=body.commit
    )
    return _shown(session, done)


@router.post("/{regression_id}/comments", response_model=EventOut, status_code=201)
def comment(session: SessionDep, regression_id: RowId, body: Comment, writer: Writer) -> RegressionEvent:
    """Adds a comment, under the token's name."""
    return service.comment(session, regression_id, body.text, author=writer.name)


@router.put("/{regression_id}/owner")
def set_owner(session: SessionDep, regression_id: RowId, body: Owner, writer: Writer) -> RegressionOut:
    """Says who looks after it."""
    return _shown(session, service.assign(session, regression_id, body.owner, author=writer.name))


def _shown(session: Session, regression: Regression) -> RegressionOut:
    (shown,) = _all_shown(session, [regression])
    return shown


def _all_shown(session: Session, regressions: Sequence[Regression]) -> list[RegressionOut]:
    session.flush()
    series = repository.series_of_all(session, [one.id for one in regressions])
    ends = {end for one in regressions for end in (one.last_good_id, one.first_bad_id) if end is not None}
    shas = {commit.id: commit.sha for commit in repository.commits(session, ends)}
    names = {number: session.get_one(Project, number).name for number in {one.project_id for one in regressions}}
    return [_out(one, names[one.project_id], shas, series.get(one.id, [])) for one in regressions]


def _out(
    regression: Regression, project: str, shas: Mapping[int, str], rows: Sequence[tuple[RegressionSeries, Series]]
) -> RegressionOut:
    return RegressionOut(
        id=regression.id,
        project=project,
        state=regression.state,
        summary=wording.summary(rows),
        last_good_sha=shas[regression.last_good_id] if regression.last_good_id is not None else None,
        first_bad_sha=shas[regression.first_bad_id],
        job_id=regression.job_id,
        fixed_by_sha=regression.fixed_by_sha,
        owner=regression.owner,
        reason=regression.reason,
        series=[
            SeriesOut(
                series_id=series.id,
                noise=entry.noise,
                recovered_by_sha=entry.recovered_by_sha,
                **wording.facts(entry, series),
            )
            for entry, series in rows
        ],
        created_at=regression.created_at,
        updated_at=regression.updated_at,
    )
