"""What a comment asks for: commands, where it is a new one of a person on a pull request of a project.

A webhook tells of it, or GitHub where the webhook was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.comments import service
from gprojci_service.github.comments import MARK
from gprojci_service.models import Project, PullRequestComment
from gprojci_service.projects import repository as project_repository
from gprojci_service.settings import Settings
from gprojci_service.webhooks.schemas import Comment, CommentAsked, IssueCommentEvent


def issue_comment(session: Session, settings: Settings, payload: dict[str, Any]) -> tuple[str, str]:
    """Takes the commands of a comment. Whether its author may give them, GitHub is asked when they are carried out."""
    event = IssueCommentEvent.model_validate(payload)
    if event.action != "created":
        return "ignored", f"a comment that is {event.action} asks for nothing"
    if event.issue.pull_request is None:
        return "ignored", "a comment on an issue asks for nothing"
    if event.sender.type == "Bot" or not _of_a_person(event.comment):
        return "ignored", "a comment of a bot asks for nothing"
    project = project_repository.by_github_id(session, event.repository.id)
    if project is None:
        return "ignored", "the repository is no project here"
    if project.archived_at is not None:
        return "ignored", f"project {project.name} is archived and gets no new jobs"
    taken = _take(session, project, event.issue.number, event.comment)
    if taken is None:
        return "ignored", "the comment has no command, or was taken before"
    return "processed", f"{len(taken.lines)} command(s) of {taken.author} taken"


def lost(session: Session, project: Project, listed: Iterable[CommentAsked], before: datetime) -> list[int]:
    """Takes the commands of listed comments that nothing was heard of; returns GitHub's numbers of these comments.

    As with webhooks, only a comment as it was first written counts: one that was edited since asks for nothing.
    """
    taken = []
    for comment in sorted(listed, key=lambda one: one.id):
        number = comment.of_pull_request
        if number is None or not _of_a_person(comment):
            continue
        if comment.updated_at != comment.created_at or not project.created_at <= comment.created_at < before:
            continue
        if _take(session, project, number, comment) is not None:
            taken.append(comment.id)
    return taken


def _of_a_person(comment: Comment) -> bool:
    return comment.user is not None and comment.user.type != "Bot" and MARK not in (comment.body or "")


def _take(session: Session, project: Project, number: int, comment: Comment) -> PullRequestComment | None:
    assert comment.user is not None
    return service.receive(
        session,
        project,
        number=number,
        github_id=comment.id,
        author=comment.user.login,
        body=comment.body or "",
        html_url=comment.html_url,
        commented_at=comment.created_at,
    )
