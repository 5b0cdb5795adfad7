"""Every query about tokens."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import Token


def by_hash(session: Session, digest: str) -> Token | None:
    return session.scalar(select(Token).where(Token.hash == digest))


def by_id(session: Session, token_id: int) -> Token | None:
    return session.get(Token, token_id)


def all_tokens(session: Session) -> Sequence[Token]:
    return session.scalars(select(Token).order_by(Token.id)).all()


def active_by_name(session: Session, name: str, scope: str) -> Sequence[Token]:
    return session.scalars(
        select(Token).where(Token.name == name, Token.scope == scope, Token.revoked_at.is_(None))
    ).all()
