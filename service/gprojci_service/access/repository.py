"""Every query about tokens, people and the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gprojci_service.models import (
    AuditEvent,
    Bisection,
    EndedSession,
    Job,
    NotificationChannel,
    Person,
    Project,
    Regression,
    Token,
)

_OF_A_PROJECT = {
    "job_id": Job.project_id,
    "regression_id": Regression.project_id,
    "bisection_id": Bisection.project_id,
    "channel_id": NotificationChannel.project_id,
}


def by_hash(session: Session, digest: str) -> Token | None:
    return session.scalar(select(Token).where(Token.hash == digest))


def by_id(session: Session, token_id: int) -> Token | None:
    return session.get(Token, token_id)


def note_use(session: Session, token_id: int, moment: datetime) -> None:
    """Notes when a token was used, unless another request does just now: all workers may have one and the same."""
    free = select(Token.id).where(Token.id == token_id).with_for_update(skip_locked=True).scalar_subquery()
    session.execute(update(Token).where(Token.id == free).values(last_used_at=moment))


def all_tokens(session: Session) -> Sequence[Token]:
    return session.scalars(select(Token).order_by(Token.id)).all()


def active_by_name(session: Session, name: str, scope: str) -> Sequence[Token]:
    return session.scalars(
        select(Token).where(Token.name == name, Token.scope == scope, Token.revoked_at.is_(None))
    ).all()


def person_of(session: Session, github_id: int) -> Person | None:
    return session.scalar(select(Person).where(Person.github_id == github_id))


def person_by_id(session: Session, person_id: int) -> Person | None:
    return session.get(Person, person_id)


def person_by_login(session: Session, login: str) -> Person | None:
    """Who was called so at the last sign-in; the newest, for a name may have changed hands."""
    return session.scalar(select(Person).where(Person.login == login).order_by(Person.signed_in_at.desc()).limit(1))


def has_ended(session: Session, mark: str) -> bool:
    return session.scalar(select(EndedSession.id).where(EndedSession.mark == mark)) is not None


def end_session(session: Session, mark: str, expires_at: datetime, moment: datetime) -> None:
    """Notes it, and forgets those that have expired by themselves."""
    session.execute(delete(EndedSession).where(EndedSession.expires_at < moment))
    session.add(EndedSession(mark=mark, expires_at=expires_at))


def names_and_privacy(session: Session) -> list[tuple[str, bool]]:
    """Projects that are not archived, private ones first."""
    query = select(Project.name, Project.private).where(Project.archived_at.is_(None))
    return [(name, private) for name, private in session.execute(query.order_by(Project.private.desc(), Project.name))]


def project_named(session: Session, detail: Mapping[str, Any]) -> str | None:
    """Name of the project that a request's fields are about."""
    name = detail.get("name", detail.get("repo"))
    if "owner" in detail and isinstance(name, str):
        return f"{detail['owner']}/{name}"
    for field, column in _OF_A_PROJECT.items():
        number = str(detail.get(field, ""))
        if number.isdecimal():
            query = select(Project.name).join(column.class_, column == Project.id)
            return session.scalar(query.where(column.class_.id == min(int(number), 2**62)))
    named = detail.get("project")
    return named if isinstance(named, str) else None


def audit_events(
    session: Session,
    *,
    actor: str | None,
    action: str | None,
    project: str | None,
    since: datetime | None,
    until: datetime | None,
    before: int | None = None,
    after: int | None = None,
    oldest_first: bool = False,
    limit: int,
) -> Sequence[AuditEvent]:
    """Rows of the audit log, newest first unless asked otherwise; `before` and `after` are ids to page on from."""
    query = select(AuditEvent).order_by(AuditEvent.id if oldest_first else AuditEvent.id.desc()).limit(limit)
    same = ((AuditEvent.actor, actor), (AuditEvent.action, action), (AuditEvent.project, project))
    for column, value in same:
        if value:
            query = query.where(column == value)
    if since is not None:
        query = query.where(AuditEvent.at >= since)
    if until is not None:
        query = query.where(AuditEvent.at < until)
    if before is not None:
        query = query.where(AuditEvent.id < before)
    if after is not None:
        query = query.where(AuditEvent.id > after)
    return session.scalars(query).all()


def audited_actions(session: Session) -> Sequence[str]:
    """What the audit log has rows of."""
    return session.scalars(select(AuditEvent.action).distinct().order_by(AuditEvent.action)).all()
