"""Decisions about tokens: making, checking, revoking."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from gprojci_service.access import audit, rate_limits, repository, sessions
from gprojci_service.database import before_commit, get_session
from gprojci_service.errors import Forbidden, InvalidRequest, TokenNotFound, Unauthorized
from gprojci_service.models import Token, now
from gprojci_service.models.token import SCOPES

SessionDep = Annotated[Session, Depends(get_session, scope="function")]
_PREFIX = "gpci_"
_RANKS = {"read": 1, "write": 2, "admin": 3}
"""Scopes that include those before them. A worker's is of another kind: it opens the worker API and nothing else."""


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


def authenticate(session: Session, request: Request, scope: str) -> Token:
    """The token behind the request's `Authorization: Bearer …`.

    Raises:
        Unauthorized: there is none, or it is wrong, expired or revoked.
        Forbidden: its scope is too small, or of another kind.
        TooManyRequests: this client has sent too many wrong ones.
    """
    kind, _, secret = (request.headers.get("authorization") or "").partition(" ")
    if kind.lower() != "bearer" or not secret:
        raise Unauthorized(
            f"send `Authorization: Bearer TOKEN` with a token of scope {scope!r} (`gprojci token create`)"
        )
    try:
        token = of_secret(session, secret)
    except Unauthorized:
        rate_limits.of(request).count("wrong token", rate_limits.client_of(request))
        raise
    if not includes(token.scope, scope):
        raise Forbidden(f"this token has scope {token.scope!r}, this needs {scope!r}")
    if token.last_used_at is None or now() - token.last_used_at > timedelta(minutes=1):
        before_commit(session, lambda: repository.note_use(session, token.id, now()))
    return token


def includes(scope: str, needed: str) -> bool:
    """Whether a token of a scope may do what another is needed for."""
    return scope == needed or (scope in _RANKS and needed in _RANKS and _RANKS[scope] >= _RANKS[needed])


async def json_fields(request: Request) -> dict[str, Any]:
    """FastAPI dependency: the fields of a JSON body, as the audit log takes them."""
    if request.method == "GET" or not await request.body():
        return {}
    try:
        body = await request.json()
    except (ValueError, RecursionError):  # the endpoint's own check of the body says so
        return {}
    return body if isinstance(body, dict) else {}


Fields = Annotated[dict[str, Any], Depends(json_fields)]


def require_worker(request: Request, session: SessionDep) -> Token:
    """FastAPI dependency of the worker API."""
    return authenticate(session, request, "worker")


def authorize_worker(request: Request) -> None:
    """As `require_worker`, for what reads a body that may take long to come: holds no transaction meanwhile.

    Raises:
        Unauthorized, Forbidden, TooManyRequests: as `authenticate`.
    """
    with request.app.state.database.session(writes=True) as session:
        authenticate(session, request, "worker")


def require_write(request: Request, session: SessionDep, fields: Fields) -> Token:
    """FastAPI dependency of whatever a user may change; the audit log has it."""
    return _for_a_change(session, request, "write", fields)


def require_admin(request: Request, session: SessionDep, fields: Fields) -> Token:
    """FastAPI dependency of what decides over others: tokens, the audit log, the App, whole projects."""
    return _for_a_change(session, request, "admin", fields)


def _for_a_change(session: Session, request: Request, scope: str, fields: dict[str, Any]) -> Token:
    token = authenticate(session, request, scope)
    audit.note(session, request, audit.Actor(token.name, "token"), fields)
    return token


def authorize_upload(request: Request) -> str:
    """FastAPI dependency of uploads, which may take long to come: holds no transaction meanwhile.

    Returns the token's name. The transaction that keeps the upload notes it with `audit.note`.

    Raises:
        Unauthorized, Forbidden, TooManyRequests: as `authenticate`, or too many uploads with this token.
    """
    with request.app.state.database.session(writes=True) as session:
        token = authenticate(session, request, "write")
    rate_limits.of(request).count("upload", str(token.id))
    return token.name


def require_read(request: Request, session: SessionDep) -> Iterator[None]:
    """FastAPI dependency of the reading API: open where GPROJCI_PUBLIC_READ is set, else for any scope but a worker's.

    Who is signed in on the pages may follow their links here: reading changes nothing, so it needs no form's mark.
    """
    settings = request.app.state.settings
    if not settings.public_read and not sessions.may_read(session, settings, request.cookies.get(sessions.COOKIE)):
        authenticate(session, request, "read")
    yield
