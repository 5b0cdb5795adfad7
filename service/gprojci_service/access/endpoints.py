"""HTTP: tokens and the audit log, for tokens of scope `admin`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from gprojci_service.access import rate_limits, repository, service
from gprojci_service.access.schemas import AuditOut, TokenCreate, TokenCreated, TokenOut
from gprojci_service.access.service import SessionDep, require_admin
from gprojci_service.identifier import RowId
from gprojci_service.models import AuditEvent, Token

ADMIN = Depends(require_admin, scope="function")
router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[ADMIN])
audit_router = APIRouter(prefix="/audit", tags=["audit log"], dependencies=[ADMIN])


@router.get("", response_model=list[TokenOut])
def list_tokens(session: SessionDep) -> list[Token]:
    """All tokens, without their secrets."""
    return list(repository.all_tokens(session))


@router.post("", status_code=201)
def create_token(
    request: Request, session: SessionDep, body: TokenCreate, creator: Annotated[Token, ADMIN]
) -> TokenCreated:
    """Makes a token; its secret is in this answer and nowhere else."""
    rate_limits.of(request).count("new token", str(creator.id))
    expires = timedelta(days=body.expires_in_days) if body.expires_in_days else None
    token, secret = service.create_token(session, body.name, body.scope, expires_in=expires)
    return TokenCreated(**TokenOut.model_validate(token).model_dump(), secret=secret)


@router.post("/{token_id}/revoke", response_model=TokenOut)
def revoke_token(session: SessionDep, token_id: RowId) -> Token:
    """Revokes a token at once."""
    return service.revoke_token(session, token_id)


@audit_router.get("", response_model=list[AuditOut])
def list_audit_events(
    session: SessionDep,
    actor: str | None = None,
    action: str | None = None,
    project: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: Annotated[int | None, Query(ge=1, le=2**62, description="Only rows with a smaller number.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[AuditEvent]:
    """Changes that somebody asked for, newest first."""
    found = repository.audit_events(
        session, actor=actor, action=action, project=project, since=since, until=until, before=before, limit=limit
    )
    return list(found)
