"""The audit log: every change that somebody asks for leaves a row, in the transaction that makes it.

What a request changes is noted by the check of its token or session (`note`), so no endpoint can forget it; the row is
written when its transaction is about to commit, and is not there if it does not. Rows are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from sqlalchemy.orm import Session

from gprojci_service.access import repository
from gprojci_service.access.rate_limits import client_of
from gprojci_service.database import before_commit
from gprojci_service.models import AuditEvent

SECRET = ("secret", "token", "code", "key", "url")
"""Fields of bodies whose value is not kept; the address of a channel is a secret with some receivers."""
LONGEST = 200


@dataclass(frozen=True)
class Actor:
    """Who asks: the name of a token or a person's login, and how that is known."""

    name: str
    kind: str
    """token, session, github (a comment), command (the command line on the database) or address (nobody knows who)."""


def note(session: Session, request: Request, actor: Actor, fields: dict[str, Any] | None = None) -> None:
    """Has the request's change written down with its transaction; reading changes nothing.

    Args:
        fields: what the body says, beside path and query.
    """
    if request.method in ("GET", "HEAD"):
        return
    route = request.scope.get("route")
    action = route.name if isinstance(route, APIRoute) else request.url.path
    detail = {**request.path_params, **request.query_params, **(fields or {})}
    project, address = repository.project_named(session, detail), client_of(request)  # it may be gone afterwards
    before_commit(session, lambda: record(session, actor, action, detail, project=project, address=address))


def record(
    session: Session,
    actor: Actor,
    action: str,
    detail: dict[str, Any],
    *,
    project: str | None = None,
    address: str | None = None,
) -> None:
    """Writes one row now."""
    row = AuditEvent(actor=actor.name, actor_kind=actor.kind, action=action, project=project, address=address)
    row.detail = {_storable(name): _kept(name, value) for name, value in detail.items() if name != "csrf"}
    session.add(row)


def _kept(name: str, value: object) -> object:
    if name in SECRET:
        return "(not kept)"
    return value if value is None or isinstance(value, bool) else _storable(str(value))


def _storable(text: str) -> str:
    """Without what JSON may hold and PostgreSQL's text may not: NUL and lone surrogates."""
    return text[:LONGEST].encode("utf-8", "replace").decode().replace("\0", "?")
