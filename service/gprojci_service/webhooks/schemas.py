"""The parts of GitHub's webhook payloads that the service reads; whatever else they carry is kept and ignored.

Source: GitHub's documentation, "Webhook events and payloads".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

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


class RepositoryId(BaseModel):
    """A repository of which nothing but GitHub's number is read."""

    id: int


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
    type: str = "User"


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
    author_association: str | None = None
    updated_at: datetime | None = None
    head: Branch
    base: Branch


class Sender(BaseModel):
    """`sender`: whose doing the event is."""

    login: str
    type: str = "User"


class Issue(BaseModel):
    """`issue`; `pull_request` is there where it is one."""

    number: int
    pull_request: dict[str, object] | None = None


class Comment(BaseModel):
    """`comment` of the event `issue_comment`."""

    id: int
    body: str | None = None
    html_url: str | None = None
    created_at: datetime
    user: User | None = None


class CommentAsked(Comment):
    """An entry of GitHub's list of a repository's comments."""

    updated_at: datetime
    issue_url: str

    @property
    def of_pull_request(self) -> int | None:
        """The number of the pull request it is on; None on an issue, which only the page's address tells."""
        number = self.issue_url.rpartition("/")[2]
        return int(number) if f"/pull/{number}" in (self.html_url or "") and number.isdecimal() else None


class IssueCommentEvent(BaseModel):
    """Event `issue_comment`."""

    action: str
    issue: Issue
    comment: Comment
    sender: Sender
    repository: RepositoryId


class PullRequestChanges(BaseModel):
    """`changes` of the action `edited`; `base` is there where the pull request got another base branch."""

    base: dict[str, object] | None = None


class PullRequestEvent(BaseModel):
    """Event `pull_request`."""

    action: str
    number: int
    pull_request: PullRequestPayload
    before: str | None = None
    """Of the action `synchronize`: the head before the push."""
    changes: PullRequestChanges | None = None
    repository: Repository
    installation: Installation | None = None


class PullRequestAsked(PullRequestPayload):
    """Of `GET /repos/{owner}/{repo}/pulls`, all or one; it has the shape that webhooks have."""

    number: int
    updated_at: datetime


class BranchHead(BaseModel):
    """`commit` of `GET /repos/{owner}/{repo}/branches/{branch}`."""

    sha: str = SHA


class BranchPayload(BaseModel):
    """Answer of `GET /repos/{owner}/{repo}/branches/{branch}`."""

    commit: BranchHead


class GitObject(BaseModel):
    """`object` of a git reference."""

    sha: str = SHA


class GitReference(BaseModel):
    """Of `GET /repos/{owner}/{repo}/git/matching-refs/{ref}`."""

    ref: str
    object: GitObject


class MergeGroup(BaseModel):
    """`merge_group`: the commit that a merge queue would make the base branch's head."""

    head_sha: str = SHA
    head_ref: str
    base_sha: str = SHA
    base_ref: str


class MergeGroupEvent(BaseModel):
    """Event `merge_group`."""

    action: str
    merge_group: MergeGroup
    reason: str | None = None
    """Of the action `destroyed`: merged, invalidated or dequeued."""
    repository: Repository
    installation: Installation | None = None


class CheckRun(BaseModel):
    """`check_run`; `external_id` is the number of our job where it is ours."""

    head_sha: str = SHA
    external_id: str | None = None


class CheckRunEvent(BaseModel):
    """Event `check_run`."""

    action: str
    check_run: CheckRun
    repository: RepositoryId


class CheckSuite(BaseModel):
    """`check_suite`: all checks of an App about a commit."""

    head_sha: str = SHA


class CheckSuiteEvent(BaseModel):
    """Event `check_suite`."""

    action: str
    check_suite: CheckSuite
    repository: RepositoryId


class RepositoryEvent(BaseModel):
    """Event `repository`."""

    action: str
    repository: Repository
    installation: Installation | None = None


class InstallationEvent(BaseModel):
    """Events `installation` and `installation_repositories`; the lists are there where the action has them."""

    action: str
    installation: Installation
    repositories: list[RepositoryId] = []
    repositories_added: list[RepositoryId] = []
    repositories_removed: list[RepositoryId] = []


@dataclass(frozen=True)
class Delivery:
    """What an authentic delivery says; it is stored whole."""

    delivery_id: str
    event: str
    payload: dict[str, Any]

    @property
    def action(self) -> str | None:
        """The payload's, where it has one in words."""
        action = self.payload.get("action")
        return action if isinstance(action, str) else None


class Accepted(BaseModel):
    """Answer to a webhook."""

    status: str
    """accepted or duplicate."""
    delivery: str
