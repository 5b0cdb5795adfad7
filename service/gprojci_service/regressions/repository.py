"""Every query about regressions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import Project, Regression


def by_id(session: Session, regression_id: int) -> Regression | None:
    return session.get(Regression, regression_id)


def open_of_series(session: Session, series_id: int) -> Sequence[Regression]:
    return session.scalars(
        select(Regression).where(Regression.series_id == series_id, Regression.state.in_(("new", "acknowledged")))
    ).all()


def search(session: Session, *, project: str | None, state: str | None, limit: int) -> Sequence[Regression]:
    query = select(Regression).order_by(Regression.id.desc()).limit(limit)
    if project:
        query = query.join(Project, Project.id == Regression.project_id).where(Project.name == project)
    if state:
        query = query.where(Regression.state == state)
    return session.scalars(query).all()
