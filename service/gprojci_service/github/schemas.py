"""What the endpoints of GitHub's set-up take and give."""

from __future__ import annotations

from pydantic import BaseModel, Field


class SetupCreate(BaseModel):
    """Who the GitHub App is to belong to."""

    organization: str | None = Field(
        None, pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})$", description="Its name; left out: the account signed in."
    )


class SetupBegun(BaseModel):
    """Where to go on in a browser, within an hour."""

    address: str
