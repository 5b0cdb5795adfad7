"""Decisions about tokens: making, checking, revoking."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from gprojci_service.access import repository, sessions
from gprojci_service.database import get_session
from gprojci_service.errors import Forbidden, InvalidRequest, TokenNotFound, Unauthorized
from gprojci_service.models import Token, now
from gprojci_service.models.token import SCOPES

SessionDep = Annotated[Session, Depends(get_session, scope="function")]
_PREFIX = "gpci_"


def hash_secret(secret: str) -> str:
    """SHA-256 in hex; the secrets are random, so no salt is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(session: Session, name: str, scope: str, *, expires_in: timedelta | None = None) -> tuple[Token, str]:
    """Makes a token and returns it with its secret, which is not stored and cannot be shown again.

    Raises:
        InvalidRequest: the scope is not one of the known ones.
    """
    if scope not in SCOPES:
        raise InvalidRequest(f"scope {scope!r} does not exist; use one of {', '.join(SCOPES)}")
    secret = _PREFIX + secrets.token_urlsafe(32)
    token = Token(name=name, scope=scope, hash=hash_secret(secret))
    token.expires_at = now() + expires_in if expires_in else None
    session.add(token)
    session.flush()
    return token, secret


def replace_token(session: Session, name: str, scope: str) -> str:
    """Revokes the tokens of that name and makes a new one; returns its secret."""
    for token in repository.active_by_name(session, name, scope):
        token.revoked_at = now()
    return create_token(session, name, scope)[1]


def revoke_token(session: Session, token_id: int) -> Token:
    """Revokes a token at once.

    Raises:
        TokenNotFound: there is no token of that number.
    """
    token = repository.by_id(session, token_id)
    if token is None:
        raise TokenNotFound(f"no token {token_id}; `gprojci token list` shows them")
    token.revoked_at = token.revoked_at or now()
    return token


def of_secret(session: Session, secret: str) -> Token:
    """The token of a secret.

    Raises:
        Unauthorized: there is none, or it has expired or was revoked.
    """
    token = repository.by_hash(session, hash_secret(secret.strip()))
    if token is None or token.revoked_at is not None:
        raise Unauthorized("this token does not exist or was revoked")
    if not sessions.is_alive(token):
        raise Unauthorized("this token has expired; make a new one with `gprojci token create`")
    return token


def authenticate(session: Session, header: str | None, scope: str) -> Token:
    """The token behind an `Authorization: Bearer …` header.

    Raises:
        Unauthorized: there is none, or it is wrong, expired or revoked.
        Forbidden: its scope is another.
    """
    kind, _, secret = (header or "").partition(" ")
    if kind.lower() != "bearer" or not secret:
        raise Unauthorized(
            f"send `Authorization: Bearer TOKEN` with a token of scope {scope!r} (`gprojci token create`)"
        )
    token = of_secret(session, secret)
    if token.scope != scope:
        raise Forbidden(f"this token has scope {token.scope!r}, this needs {scope!r}")
    if token.last_used_at is None or now() - token.last_used_at > timedelta(minutes=1):
        token.last_used_at = now()
    return token


def require_worker(request: Request, session: SessionDep) -> Token:
    """FastAPI dependency of the worker API."""
    return authenticate(session, request.headers.get("authorization"), "worker")


def authorize_worker(request: Request) -> None:
    """As `require_worker`, for what reads a body that may take long to come: holds no transaction meanwhile.

    Raises:
        Unauthorized, Forbidden: as `authenticate`.
    """
    with request.app.state.database.session(writes=True) as session:
        authenticate(session, request.headers.get("authorization"), "worker")


def require_write(request: Request, session: SessionDep) -> Token:
    """FastAPI dependency of whatever a user may change."""
    return authenticate(session, request.headers.get("authorization"), "write")


def authorize_write(request: Request) -> str:
    """FastAPI dependency of what reads a body that may take long to come: holds no transaction meanwhile.

    Returns the token's name.

    Raises:
        Unauthorized, Forbidden: as `authenticate`.
    """
    with request.app.state.database.session(writes=True) as session:
        return authenticate(session, request.headers.get("authorization"), "write").name


def require_read(request: Request, session: SessionDep) -> Iterator[None]:
    """FastAPI dependency of the reading API: open where GPROJCI_PUBLIC_READ is set, else like writing.

    Who is signed in on the pages may follow their links here: reading changes nothing, so it needs no form's mark.
    """
    settings = request.app.state.settings
    if not settings.public_read and not sessions.may_read(session, settings, request.cookies.get(sessions.COOKIE)):
        authenticate(session, request.headers.get("authorization"), "write")
    yield
