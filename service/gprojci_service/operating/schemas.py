"""What is said of the service's own state."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Alive(BaseModel):
    """The process answers."""

    status: str
    version: str


class Ready(BaseModel):
    """Whether requests can be served, and what was looked at, in words."""

    ready: bool
    database: str
    schema_: str = Field(serialization_alias="schema")
    broker: str
