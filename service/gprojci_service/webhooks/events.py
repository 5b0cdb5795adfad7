"""What each event asks for: the code's events here, those of repositories and installations in `accounts.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.jobs import repository as job_repository
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Project, PullRequest
from gprojci_service.projects import repository as project_repository
from gprojci_service.projects import service as projects
from gprojci_service.settings import Settings
from gprojci_service.webhooks import accounts, comments
from gprojci_service.webhooks.schemas import (
    CheckRunEvent,
    CheckSuiteEvent,
    Installation,
    MergeGroupEvent,
    PullRequestEvent,
    PullRequestPayload,
    Push,
    Repository,
)

Outcome = tuple[str, str]
"""The delivery's state, processed or ignored, and what was done, in words."""

_BRANCH = "refs/heads/"


def handle(session: Session, settings: Settings, event: str, payload: dict[str, Any]) -> Outcome:
    """Does what an event asks for; one that is not listed asks for nothing.

    Raises:
        ValidationError: the payload lacks what GitHub documents for its event.
    """
    handler = HANDLERS.get(event)
    if handler is None:
        return "ignored", f"event {event} asks for nothing here"
    return handler(session, settings, payload)


def _ping(session: Session, settings: Settings, payload: dict[str, Any]) -> Outcome:
    return "processed", "pong"


def _push(session: Session, settings: Settings, payload: dict[str, Any]) -> Outcome:
    push = Push.model_validate(payload)
    if push.deleted or not push.ref.startswith(_BRANCH):
        return "ignored", "not a push to a branch"
    project = _project(session, push.repository, push.installation)
    branch = push.ref.removeprefix(_BRANCH)
    if branch != project.default_branch:
        return "ignored", f"branch {branch} is measured through its pull request"
    if project.archived_at is not None:
        return _archived(project)
    head = push.head_commit
    if head is not None and head.id == push.after:
        projects.record_commit(
            session,
            project.id,
            push.after,
            message=head.message,
            author_name=head.author.name,
            author_email=head.author.email,
            authored_at=head.timestamp,
        )
    return _made(measure_branch(session, settings, project, push.after))


def measure_branch(session: Session, settings: Settings, project: Project, head_sha: str) -> list[int]:
    """Makes the jobs of a new head of the default branch, each against its first parent."""
    return jobs.create(
        session, settings, project, kind="push", head_sha=head_sha, base_sha=None, ref=project.default_branch
    )


def _pull_request(session: Session, settings: Settings, payload: dict[str, Any]) -> Outcome:
    event = PullRequestEvent.model_validate(payload)
    known_project = project_repository.by_github_id(session, event.repository.id)
    known = project_repository.pull_request(session, known_project.id, event.number) if known_project else None
    if known is not None and _came_late(known, event):  # it also describes the repository as it was
        return "ignored", f"came late: pull request {event.number} is known as it was at {known.github_updated_at}"
    project = _project(session, event.repository, event.installation)
    pull_request = record(session, project, event.number, event.pull_request, previous_head_sha=event.before)
    match event.action:
        case "closed" | "converted_to_draft":
            reason = "was closed" if event.action == "closed" else "was made a draft"
            cancelled = jobs.cancel_of_pull_request(session, pull_request.id, f"pull request {event.number} {reason}")
            if pull_request.draft and pull_request.state == "open" and project.archived_at is None:
                measure(session, settings, project, pull_request)
            return "processed", f"{cancelled} job(s) cancelled"
        case "edited" if event.changes is None or event.changes.base is None:
            return "ignored", "the pull request was edited, and not its base"
        case "opened" | "synchronize" | "reopened" | "ready_for_review" | "edited":
            if project.archived_at is not None:
                return _archived(project)
            made = measure(session, settings, project, pull_request)
            if pull_request.draft:
                return "processed", "a draft is measured once it is ready for review; until then its check is queued"
            return _made(made)
        case other:
            return "ignored", f"action {other} changes no code"


def _came_late(known: PullRequest, event: PullRequestEvent) -> bool:
    """Whether a delivery tells of something older than what is known: GitHub keeps no order between deliveries.

    GitHub's times are whole seconds. Within one, what knows the head before the present one is older, unless a push
    brought that back; and what is closed was not opened after it.
    """
    told, asked = known.github_updated_at, event.pull_request.updated_at
    if told is None or asked is None:
        return False
    if asked != told:
        return asked < told
    has_older_head = event.pull_request.head.sha == known.previous_head_sha and event.before != known.head_sha
    return has_older_head or (event.action == "opened" and known.state != "open")


def record(
    session: Session,
    project: Project,
    number: int,
    payload: PullRequestPayload,
    previous_head_sha: str | None = None,
) -> PullRequest:
    """Keeps a pull request as GitHub describes it."""
    dated = {"github_updated_at": payload.updated_at, "previous_head_sha": previous_head_sha}
    return projects.record_pull_request(
        session,
        project.id,
        number,
        title=payload.title,
        author_login=payload.user.login if payload.user else None,
        author_association=payload.author_association,
        state="merged" if payload.merged else payload.state,
        draft=payload.draft,
        from_fork=payload.head.repo is None or payload.head.repo.id != project.github_id,
        head_sha=payload.head.sha,
        head_ref=payload.head.ref,
        base_sha=payload.base.sha,
        base_ref=payload.base.ref,
        html_url=payload.html_url,
        **{name: value for name, value in dated.items() if value is not None},
    )


def measure(session: Session, settings: Settings, project: Project, pull_request: PullRequest) -> list[int]:
    """Makes the jobs of a pull request's present head against its present base; a draft's wait until it is ready."""
    return jobs.create(
        session,
        settings,
        project,
        kind="pull_request",
        head_sha=pull_request.head_sha,
        base_sha=pull_request.base_sha,
        ref=pull_request.head_ref,
        pull_request=pull_request,
    )


def _merge_group(session: Session, settings: Settings, payload: dict[str, Any]) -> Outcome:
    event = MergeGroupEvent.model_validate(payload)
    group = event.merge_group
    project = _project(session, event.repository, event.installation)
    if event.action == "destroyed":
        reason = f"the merge group was destroyed: {event.reason or 'no reason given'}"
        return (
            "processed",
            f"{jobs.cancel_of_merge_group(session, project.id, group.head_sha, reason)} job(s) cancelled",
        )
    if event.action != "checks_requested":
        return "ignored", f"action {event.action} asks for nothing here"
    if project.archived_at is not None:
        return _archived(project)
    if job_repository.merge_group_has_job(session, project.id, group.head_sha):
        return _made([])
    made = measure_merge_group(
        session, settings, project, head_sha=group.head_sha, base_sha=group.base_sha, ref=group.head_ref
    )
    return _made(made)


def measure_merge_group(
    session: Session, settings: Settings, project: Project, *, head_sha: str, base_sha: str, ref: str
) -> list[int]:
    """Makes the jobs of a merge group. Who may put a pull request into the queue may also approve its code: a fork's
    waits no second time."""
    return jobs.create(
        session,
        settings,
        project,
        kind="merge_group",
        head_sha=head_sha,
        base_sha=base_sha,
        ref=ref.removeprefix(_BRANCH),
    )


def _check_run(session: Session, settings: Settings, payload: dict[str, Any]) -> Outcome:
    event = CheckRunEvent.model_validate(payload)
    if event.action != "rerequested":
        return "ignored", f"action {event.action} asks for nothing here"
    project = project_repository.by_github_id(session, event.repository.id)
    number = event.check_run.external_id or ""
    job = job_repository.by_id(session, int(number)) if number.isdecimal() and len(number) < 19 else None
    if project is None or job is None or (job.project_id, job.head_sha) != (project.id, event.check_run.head_sha):
        return "ignored", "the check run is about no job of ours"
    if project.archived_at is not None:
        return _archived(project)
    return _made(jobs.rerun_head(session, settings, project, job.head_sha, like=job), "its job is still open")


def _check_suite(session: Session, settings: Settings, payload: dict[str, Any]) -> Outcome:
    event = CheckSuiteEvent.model_validate(payload)
    if event.action != "rerequested":
        return "ignored", f"action {event.action} asks for nothing here"
    project = project_repository.by_github_id(session, event.repository.id)
    if project is None:
        return "ignored", "the repository is no project here"
    if project.archived_at is not None:
        return _archived(project)
    head_sha, made = event.check_suite.head_sha, set[int]()
    if not job_repository.of_head(session, project.id, head_sha):
        waiting = project_repository.open_with_head(session, project.id, head_sha)
        if not waiting:
            return "ignored", f"commit {head_sha[:10]} has neither a job nor an open pull request"
        made |= {job for pull_request in waiting for job in measure(session, settings, project, pull_request)}
    # Asked for by hand, a draft is measured too.
    made |= set(jobs.rerun_head(session, settings, project, head_sha, like=None))
    return _made(sorted(made), "its jobs are still open")


def _project(session: Session, repository: Repository, installation: Installation | None) -> Project:
    return projects.register(
        session,
        github_id=repository.id,
        name=repository.full_name,
        clone_url=repository.clone_url,
        html_url=repository.html_url,
        default_branch=repository.default_branch,
        private=repository.private,
        installation_id=installation.id if installation else None,
    )


def _archived(project: Project) -> Outcome:
    return "ignored", f"project {project.name} is archived and gets no new jobs"


def _made(created: list[int], otherwise: str = "its job existed already") -> Outcome:
    return "processed", f"job(s) {', '.join(map(str, created))} made" if created else otherwise


HANDLERS: dict[str, Callable[[Session, Settings, dict[str, Any]], Outcome]] = {
    "ping": _ping,
    "push": _push,
    "pull_request": _pull_request,
    "issue_comment": comments.issue_comment,
    "merge_group": _merge_group,
    "check_run": _check_run,
    "check_suite": _check_suite,
    "repository": accounts.repository,
    "installation": accounts.installation,
    "installation_repositories": accounts.installation_repositories,
}
