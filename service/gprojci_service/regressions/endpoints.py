"""HTTP: regressions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from sqlalchemy.orm import Session

from gprojci_service.access.service import SessionDep, require_read, require_write
from gprojci_service.identifier import RowId
from gprojci_service.models import Project, Regression, RegressionEvent, Token
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
    return [_shown(session, one) for one in found]


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
    session.flush()
    rows = repository.series_of(session, regression.id)
    last_good = repository.commit(session, regression.last_good_id)
    first_bad = repository.commit(session, regression.first_bad_id)
    assert first_bad is not None
    return RegressionOut(
        id=regression.id,
        project=session.get_one(Project, regression.project_id).name,
        state=regression.state,
        summary=wording.summary(rows),
        last_good_sha=last_good.sha if last_good else None,
        first_bad_sha=first_bad.sha,
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
