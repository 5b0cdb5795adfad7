"""What the project endpoints take and give."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field


class ProjectCreate(BaseModel):
    """A project to be registered by hand; a signed webhook of a repository registers it too."""

    name: str = Field(
        max_length=200, pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$", description="Full name, `owner/name`."
    )
    clone_url: str = Field(
        max_length=2000,
        pattern=r"^(https?://|ssh://|file:///)[!-~]+$",
        description="Where workers fetch it from: https:// or ssh://, of a public host.",
    )
    default_branch: str = Field("main", min_length=1, max_length=255, pattern=r"^[^\x00-\x20\x7f]+$")
    hardware: list[str] | None = Field(None, max_length=20, description="Hardware classes that its jobs are made for.")


class ProjectContents(BaseModel):
    """What is kept of a project, and goes with it."""

    project: str
    rows: dict[str, int] = Field(description="Rows by table: jobs, reports, samples, …")


class ProjectOut(BaseModel):
    """A project."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    name: str
    clone_url: str
    html_url: str | None
    default_branch: str
    private: bool
    hardware: list[str] | None
    created_at: datetime
