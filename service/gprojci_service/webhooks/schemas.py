"""The parts of GitHub's webhook payloads that the service reads; whatever else they carry is kept and ignored.

Source: GitHub's documentation, "Webhook events and payloads".
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

SHA = Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")


class Repository(BaseModel):
    """`repository` of every event."""

    id: int
    full_name: str
    clone_url: str
    html_url: str | None = None
    default_branch: str = "main"
    private: bool = False


class Installation(BaseModel):
    """`installation`: which App installation sent it."""

    id: int


class Author(BaseModel):
    """Author of a pushed commit."""

    name: str | None = None
    email: str | None = None


class PushedCommit(BaseModel):
    """`head_commit` and the entries of `commits`."""

    id: str = SHA
    message: str
    timestamp: datetime
    author: Author


class Push(BaseModel):
    """Event `push`."""

    ref: str
    before: str = SHA
    after: str = SHA
    deleted: bool = False
    repository: Repository
    installation: Installation | None = None
    head_commit: PushedCommit | None = None


class User(BaseModel):
    """A GitHub account."""

    login: str


class HeadRepository(BaseModel):
    """The repository that a pull request's head is in; None once a fork was deleted."""

    id: int


class Branch(BaseModel):
    """`head` and `base` of a pull request."""

    sha: str = SHA
    ref: str
    repo: HeadRepository | None = None


class PullRequestPayload(BaseModel):
    """`pull_request` of the event of that name."""

    title: str
    state: str
    merged: bool | None = None
    draft: bool = False
    html_url: str | None = None
    user: User | None = None
    head: Branch
    base: Branch


class PullRequestEvent(BaseModel):
    """Event `pull_request`."""

    action: str
    number: int
    pull_request: PullRequestPayload
    repository: Repository
    installation: Installation | None = None


class Accepted(BaseModel):
    """Answer to a webhook."""

    status: str
    """accepted or duplicate."""
    delivery: str
