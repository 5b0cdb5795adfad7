"""Every query about projects, commits and pull requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import Commit, Job, Project, PullRequest


def by_name(session: Session, name: str) -> Project | None:
    return session.scalar(select(Project).where(Project.name == name))


def by_github_id(session: Session, github_id: int) -> Project | None:
    return session.scalar(select(Project).where(Project.github_id == github_id))


def by_github_ids(session: Session, github_ids: Iterable[int]) -> Sequence[Project]:
    return session.scalars(select(Project).where(Project.github_id.in_(list(github_ids)))).all()


def of_installation(session: Session, installation_id: int) -> Sequence[Project]:
    return session.scalars(select(Project).where(Project.installation_id == installation_id)).all()


def all_projects(session: Session) -> Sequence[Project]:
    return session.scalars(select(Project).where(Project.archived_at.is_(None)).order_by(Project.name)).all()


def busy_job(session: Session, project_id: int) -> int | None:
    """A job of a project that a worker or a task is about."""
    return session.scalar(
        select(Job.id).where(Job.project_id == project_id, Job.state.in_(("running", "deciding"))).limit(1)
    )


def commit(session: Session, project_id: int, sha: str) -> Commit | None:
    return session.scalar(select(Commit).where(Commit.project_id == project_id, Commit.sha == sha))


def commits(session: Session, project_id: int, shas: Iterable[str]) -> dict[str, Commit]:
    """Those commits of a project that are known, by SHA."""
    found = session.scalars(select(Commit).where(Commit.project_id == project_id, Commit.sha.in_(list(shas))))
    return {commit.sha: commit for commit in found}


def commits_by_prefix(session: Session, project_id: int, prefix: str) -> Sequence[Commit]:
    """Commits whose SHA begins with `prefix` (hex digits only); at most two, which is enough to tell ambiguity."""
    query = (
        # A range instead of LIKE, so that the index of any collation serves: "g" follows every hexadecimal digit.
        select(Commit).where(Commit.project_id == project_id, Commit.sha.between(prefix, f"{prefix}g")).limit(2)
    )
    return session.scalars(query).all()


def open_pull_requests(session: Session, project_id: int) -> Sequence[PullRequest]:
    return session.scalars(
        select(PullRequest).where(PullRequest.project_id == project_id, PullRequest.state == "open")
    ).all()


def open_with_head(session: Session, project_id: int, head_sha: str) -> Sequence[PullRequest]:
    """Open pull requests whose present head is this commit."""
    return session.scalars(
        select(PullRequest).where(
            PullRequest.project_id == project_id, PullRequest.head_sha == head_sha, PullRequest.state == "open"
        )
    ).all()


def pull_request(session: Session, project_id: int, number: int) -> PullRequest | None:
    return session.scalar(select(PullRequest).where(PullRequest.project_id == project_id, PullRequest.number == number))
