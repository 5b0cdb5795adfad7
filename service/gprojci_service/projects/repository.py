"""Every query about projects, commits and pull requests."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import Commit, Project, PullRequest


def by_name(session: Session, name: str) -> Project | None:
    return session.scalar(select(Project).where(Project.name == name))


def by_github_id(session: Session, github_id: int) -> Project | None:
    return session.scalar(select(Project).where(Project.github_id == github_id))


def all_projects(session: Session) -> Sequence[Project]:
    return session.scalars(select(Project).where(Project.archived_at.is_(None)).order_by(Project.name)).all()


def commit(session: Session, project_id: int, sha: str) -> Commit | None:
    return session.scalar(select(Commit).where(Commit.project_id == project_id, Commit.sha == sha))


def pull_request(session: Session, project_id: int, number: int) -> PullRequest | None:
    return session.scalar(select(PullRequest).where(PullRequest.project_id == project_id, PullRequest.number == number))
