"""What the token endpoints take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class TokenCreate(BaseModel):
    """A token to be made."""

    name: str = Field(min_length=1, max_length=100)
    scope: Literal["worker", "read", "write", "admin"]
    expires_in_days: int | None = Field(None, ge=1, le=3650)


class TokenOut(BaseModel):
    """A token without its secret."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    name: str
    scope: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class TokenCreated(TokenOut):
    """A new token with its secret, shown this once."""

    secret: str


class AuditOut(BaseModel):
    """A change that somebody asked for."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    actor: str = Field(description="Name of the token, or login of the person.")
    actor_kind: str = Field(description="token, session, github (a comment) or command (on the database itself)")
    action: str
    project: str | None
    detail: dict[str, Any] = Field(description="Path, query and body, without secrets.")
    address: str | None
