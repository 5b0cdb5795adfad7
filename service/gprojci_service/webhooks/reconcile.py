"""Finds what lost webhooks were about: GitHub does not deliver again by itself.

Sources: GitHub's REST documentation, "List pull requests", "Get a pull request", "Get a branch", "List matching
references", "List issue comments for a repository"; its webhook guide, "Handling failed webhook deliveries"; its
documentation of merge queues, for where the branches of merge groups lie.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from sqlalchemy.orm import Session

from gprojci_service.github.client import GitHub, read
from gprojci_service.github.rest import PER_PAGE, Failure, pages
from gprojci_service.jobs import repository as job_repository
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Project, PullRequest, now
from gprojci_service.projects import repository as project_repository
from gprojci_service.settings import Settings
from gprojci_service.webhooks import comments, events
from gprojci_service.webhooks.schemas import BranchPayload, CommentAsked, GitReference, PullRequestAsked

logger = logging.getLogger(__name__)

# What changed this shortly before GitHub was asked has its webhook still on the way.
ON_THE_WAY = timedelta(minutes=1)


@dataclass(frozen=True)
class Seen:
    """A repository as GitHub described it: its default branch's head, the open pull requests, those closed since, the
    merge groups that wait to become the default branch's head, and the newest comments."""

    asked_at: datetime
    head_sha: str
    pull_requests: list[PullRequestAsked]
    merge_groups: list[GitReference]
    comments: list[CommentAsked]


def look(github: GitHub, repository: str, branch: str, known_open: Iterable[int]) -> Seen:
    """Asks GitHub about a repository. Pull requests thought open that are not in the list are asked for one by one.

    Raises:
        Failure: GitHub does not answer, or not as it documents.
    """
    asked_at = now()
    path = f"/repos/{repository}"
    head = read(github, f"{path}/branches/{quote(branch)}", BranchPayload)
    found = list(pages(lambda page: read(github, page, list[PullRequestAsked]), f"{path}/pulls?state=open"))
    listed = {pull_request.number for pull_request in found}
    found += [read(github, f"{path}/pulls/{number}", PullRequestAsked) for number in known_open if number not in listed]
    groups = read(github, f"{path}/git/matching-refs/{quote(_groups(branch))}", list[GitReference])
    return Seen(asked_at, head.commit.sha, found, groups, _newest_comments(github, repository, asked_at))


def _newest_comments(github: GitHub, repository: str, asked_at: datetime) -> list[CommentAsked]:
    """None where GitHub does not answer: without them the rest is made up for all the same."""
    # A day that begins at midnight: the same address each time, which GitHub answers for nothing while nothing is new.
    since = f"{asked_at - timedelta(days=1):%Y-%m-%dT00:00:00Z}"
    path = f"/repos/{repository}/issues/comments?sort=created&direction=desc&since={since}&per_page={PER_PAGE}"
    try:
        return read(github, path, list[CommentAsked])
    except Failure as failure:
        logger.warning("project %s: lost commands are not looked for: %s", repository, failure)
        return []


def _groups(branch: str) -> str:
    return f"heads/gh-readonly-queue/{branch}/"


def catch_up(session: Session, settings: Settings, project: Project, seen: Seen) -> list[int]:
    """Makes the jobs that are missing and cancels those of closed pull requests; returns the new jobs' numbers."""
    created: list[int] = []
    if not job_repository.branch_has_job(session, project.id, project.default_branch, seen.head_sha):
        created += events.measure_branch(session, settings, project, seen.head_sha)
    for pull_request in seen.pull_requests:
        created += _catch_up_pull_request(session, settings, project, seen.asked_at, pull_request)
    for group in seen.merge_groups:
        created += _catch_up_merge_group(session, settings, project, group, seen.head_sha)
    _cancel_gone_groups(session, project, seen)
    commands = comments.lost(session, project, seen.comments, seen.asked_at - ON_THE_WAY)
    if commands:
        logger.warning("project %s: webhooks were lost; comment(s) %s carried out", project.name, commands)
    if created:
        logger.warning("project %s: webhooks were lost; job(s) %s made", project.name, created)
    return created


def _catch_up_pull_request(
    session: Session, settings: Settings, project: Project, asked_at: datetime, asked: PullRequestAsked
) -> list[int]:
    known = project_repository.pull_request(session, project.id, asked.number)
    if asked.updated_at > asked_at - ON_THE_WAY or (known is not None and known.updated_at > asked_at):
        return []
    if known is not None and known.github_updated_at is not None and asked.updated_at < known.github_updated_at:
        return []  # a webhook that GitHub sent meanwhile knows more
    if known is None and asked.updated_at < project.created_at:
        return []  # nothing happened to it since the project is measured here
    was_draft = known is not None and known.draft
    has_job = known is not None and job_repository.pull_request_has_job(session, known.id, known.head_sha)
    if known is not None and _is_as_known(known, asked) and has_job:
        return []
    pull_request = events.record(session, project, asked.number, asked)
    if pull_request.state != "open" or (pull_request.draft and not was_draft):
        reason = f"pull request {asked.number} is {'a draft' if pull_request.state == 'open' else pull_request.state}"
        jobs.cancel_of_pull_request(session, pull_request.id, reason)
    if pull_request.state != "open":
        return []
    return events.measure(session, settings, project, pull_request)


def _catch_up_merge_group(
    session: Session, settings: Settings, project: Project, group: GitReference, base_sha: str
) -> list[int]:
    """Measures a group against the branch it is to become, whose gate decides. The webhook would have named the group
    before it, where there is one: GitHub tells that nowhere else."""
    if job_repository.merge_group_has_job(session, project.id, group.object.sha):
        return []
    return events.measure_merge_group(
        session, settings, project, head_sha=group.object.sha, base_sha=base_sha, ref=group.ref
    )


def _cancel_gone_groups(session: Session, project: Project, seen: Seen) -> None:
    """Cancels the jobs of merge groups that are not there any more, unless they were made while GitHub was asked."""
    there = {group.object.sha for group in seen.merge_groups}
    prefix = _groups(project.default_branch).removeprefix("heads/")
    for head_sha in job_repository.open_merge_groups(session, project.id, prefix, seen.asked_at):
        if head_sha not in there:
            jobs.cancel_of_merge_group(session, project.id, head_sha, "the merge group is gone")


def _is_as_known(known: PullRequest, asked: PullRequestAsked) -> bool:
    """The base's SHA is left out: it moves with every push to the base, which asks for no new measurement."""
    before = (known.state, known.draft, known.head_sha, known.base_ref)
    return before == (asked.state, asked.draft, asked.head.sha, asked.base.ref)
