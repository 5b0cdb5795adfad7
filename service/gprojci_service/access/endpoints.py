"""HTTP: tokens."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Depends

from gprojci_service.access import repository, service
from gprojci_service.access.schemas import TokenCreate, TokenCreated, TokenOut
from gprojci_service.access.service import SessionDep, require_write
from gprojci_service.identifier import RowId
from gprojci_service.models import Token

router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[Depends(require_write, scope="function")])


@router.get("", response_model=list[TokenOut])
def list_tokens(session: SessionDep) -> list[Token]:
    """All tokens, without their secrets."""
    return list(repository.all_tokens(session))


@router.post("", status_code=201)
def create_token(session: SessionDep, body: TokenCreate) -> TokenCreated:
    """Makes a token; its secret is in this answer and nowhere else."""
    expires = timedelta(days=body.expires_in_days) if body.expires_in_days else None
    token, secret = service.create_token(session, body.name, body.scope, expires_in=expires)
    return TokenCreated(**TokenOut.model_validate(token).model_dump(), secret=secret)


@router.post("/{token_id}/revoke", response_model=TokenOut)
def revoke_token(session: SessionDep, token_id: RowId) -> Token:
    """Revokes a token at once."""
    return service.revoke_token(session, token_id)
