"""Carries out the commands of a comment: whether its author may, what GitHub knows of the pull request, then each one.

Sources: GitHub's REST documentation, "Get a pull request", "Get a commit", "Compare two commits".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel
from sqlalchemy.orm import Session

from gprojci_service.access import audit
from gprojci_service.comments import language, repository, service
from gprojci_service.comments.language import Command, CommandUnclear
from gprojci_service.errors import Conflict, ServiceError
from gprojci_service.gate import overrides
from gprojci_service.github import people, pull_request_comment
from gprojci_service.github.client import GitHub, read
from gprojci_service.github.markdown import prose
from gprojci_service.github.rest import Failure
from gprojci_service.jobs import repository as job_repository
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Job, Project, PullRequest, PullRequestComment, now
from gprojci_service.models.job import OPEN_STATES
from gprojci_service.projects import repository as project_repository
from gprojci_service.settings import Settings
from gprojci_service.webhooks import events
from gprojci_service.webhooks.schemas import PullRequestAsked

MAY_WRITE = ("write", "admin")
"""Of GitHub's permissions."""
SETTLED = timedelta(minutes=1)
"""A commit that came later than this before a comment may not be what its author saw: its whole SHA is asked for."""
LONGEST_TEXT = 1000
"""Characters of the reason why a command was refused; it quotes the reason of an acceptance at most."""


class CommandRefused(Conflict):
    """The command is clear and cannot be carried out now."""


class _Commit(BaseModel):
    sha: str


class _Comparison(BaseModel):
    status: str


@dataclass(frozen=True)
class Asked:
    """What GitHub said: the pull request where the author may command, else None; the baselines named, in full."""

    pull_request: PullRequestAsked | None
    baselines: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Why a baseline cannot be one."""


def ask(github: GitHub, project_name: str, comment: PullRequestComment) -> Asked:
    """Asks GitHub what a comment needs.

    Raises:
        Failure: GitHub does not answer, or does not let itself be asked.
    """
    path, found = f"/repos/{quote(project_name)}", people.permission(github, project_name, comment.author)
    if found is None or found.permission not in MAY_WRITE:
        return Asked(None)
    asked = Asked(read(github, f"{path}/pulls/{comment.number}", PullRequestAsked))
    for sha in {command.sha for command in map(_parsed, comment.lines) if command and command.name == "baseline"}:
        if sha is not None:
            _ask_baseline(github, path, sha, asked)
    return asked


def _ask_baseline(github: GitHub, path: str, sha: str, asked: Asked) -> None:
    """A base is built, and its gate decides, so it must be on the base branch: GitHub also knows commits of forks."""
    assert asked.pull_request is not None
    branch = asked.pull_request.base.ref
    try:
        full = read(github, f"{path}/commits/{sha}", _Commit).sha
        if not full.startswith(sha):
            raise CommandRefused(f"{sha} is the name of something else than a commit")
        compared = read(github, f"{path}/compare/{quote(branch, safe='')}...{full}?per_page=1", _Comparison)
        if compared.status not in ("behind", "identical"):
            raise CommandRefused(f"commit {full[:10]} is not on {branch}; only what was merged can be a baseline")
        asked.baselines[sha] = full
    except CommandRefused as refused:
        asked.refused[sha] = refused.detail
    except Failure as failure:
        if failure.status not in (404, 422):
            raise
        asked.refused[sha] = f"there is no single commit {sha}"


def _parsed(line: str) -> Command | None:
    try:
        return language.parse(line)
    except CommandUnclear:
        return None


def carry_out(session: Session, settings: Settings, row_id: int, asked: Asked) -> None:
    """Does what a pending comment says, line by line; one that cannot be done holds up none of the others."""
    comment = repository.locked(session, row_id)
    if comment is None or comment.state != "pending":
        return
    comment.done_at, comment.next_attempt_at = now(), None
    project = session.get_one(Project, comment.project_id)
    if asked.pull_request is None:
        comment.state, comment.detail = "refused", f"{comment.author} has no write access to {project.name}"
    else:
        pull_request = events.record(session, project, comment.number, asked.pull_request)
        performed = _Performance(session, settings, project, pull_request, comment, asked)
        comment.results = [performed.result(line) for line in comment.lines]
        for result in comment.results:
            if result["ok"]:
                detail = {"pull_request": comment.number, "line": result["line"]}
                audit.record(session, audit.Actor(comment.author, "github"), "comment", detail, project=project.name)
        comment.state = "done"
        session.flush()
        pull_request_comment.refresh(session, pull_request)
    react(session, comment)
    service.send_next(session, comment)


def react(session: Session, comment: PullRequestComment) -> None:
    """Answers the comment by one reaction."""
    pull_request = project_repository.pull_request(session, comment.project_id, comment.number)
    if pull_request is None:
        return
    if comment.state == "refused":
        content = "-1"
    elif comment.state == "failed" or not all(result["ok"] for result in comment.results):
        content = "confused"
    else:
        content = "rocket" if any(result["started"] for result in comment.results) else "+1"
    pull_request_comment.react(session, pull_request, comment.github_id, content)


@dataclass(frozen=True)
class _Performance:
    """The commands, on one pull request at its present head."""

    session: Session
    settings: Settings
    project: Project
    pull_request: PullRequest
    comment: PullRequestComment
    asked: Asked

    def result(self, line: str) -> dict[str, Any]:
        """Carries out one line; `started` is whether something is measured by it."""
        do: dict[str, Callable[[Command], tuple[bool, str]]] = {
            "run": self._run,
            "approve": self._run,
            "rerun": self._rerun,
            "cancel": self._cancel,
            "baseline": self._baseline,
            "accept": self._accept,
            "help": lambda _: (False, "see the commands below"),
        }
        try:
            command = language.parse(line)
            if self.pull_request.state != "open" and command.name != "help":
                raise CommandRefused(f"the pull request is {self.pull_request.state}")
            with self.session.begin_nested():
                started, text = do[command.name](command)
        except ServiceError as error:
            return {"line": line, "ok": False, "started": False, "text": prose(error.detail, LONGEST_TEXT)}
        return {"line": line, "ok": True, "started": started, "text": text}

    @property
    def _head(self) -> str:
        return self.pull_request.head_sha

    def _newest(self) -> list[Job]:
        """The newest job about the head on each hardware class; baselines are beside them."""
        newest: dict[str, Job] = {}
        for job in job_repository.of_pull_request_head(self.session, self.pull_request.id, self._head):
            if job.kind != "baseline":
                newest.setdefault(job.hardware, job)
        return sorted(newest.values(), key=lambda job: job.id)

    def _links(self, job_ids: list[int]) -> str:
        return ", ".join(f"[job {number}]({self.settings.public_url}/jobs/{number})" for number in job_ids)

    def _run(self, command: Command) -> tuple[bool, str]:
        if command.sha is not None and not self._head.startswith(command.sha):
            raise CommandRefused(f"the head is commit {self._head[:10]} now, not {command.sha[:10]}")
        known = self._newest()
        made = [] if known else events.measure(self.session, self.settings, self.project, self.pull_request)
        drafts = [job for job in self._newest() if job.state == "draft"]
        for job in drafts:
            jobs.ready(self.session, self.settings, self.project, job)
        made = sorted({*made, *(job.id for job in drafts)})
        newest = self._newest()
        waiting = [job for job in newest if job.state == "awaiting_approval"]
        if waiting:
            return True, self._approve(command, waiting)
        if made:
            return True, f"{self._links(made)} measures commit {self._head[:10]}"
        if newest and all(job.state == "cancelled" for job in newest):
            return self._rerun(command)
        return False, "; ".join(f"{self._links([job.id])} is {job.state} already" for job in newest)

    def _approve(self, command: Command, waiting: list[Job]) -> str:
        known = job_repository.of_pull_request_head(self.session, self.pull_request.id, self._head)
        unseen = min(job.created_at for job in known) > self.comment.commented_at - SETTLED
        if unseen and command.sha != self._head:  # a commit can be made whose SHA begins as another's
            raise CommandRefused(
                f"commit {self._head[:10]} came just before this comment or after it; look at its changes and name it "
                f"in full: `{language.PREFIX} approve {self._head}`"
            )
        jobs.approve(self.session, waiting[0].id, self._head, self.comment.author)
        return f"approved commit {self._head[:10]}: {self._links([job.id for job in waiting])}"

    def _rerun(self, command: Command) -> tuple[bool, str]:
        known = self._newest()
        if not known:
            return self._run(Command("run"))
        still = [job.id for job in known if job.state in OPEN_STATES]
        ended = [job.id for job in known if job.state not in OPEN_STATES]
        if not ended:
            raise CommandRefused(f"job {still[0]} about commit {self._head[:10]} has not ended yet")
        again = [jobs.rerun(self.session, self.settings, job_id) for job_id in ended]
        return True, f"{self._links([job.id for job in again])} measures commit {self._head[:10]} anew{_then(again)}"

    def _cancel(self, command: Command) -> tuple[bool, str]:
        under_way = job_repository.open_of_pull_request(self.session, self.pull_request.id)
        if not under_way:
            raise CommandRefused("nothing is under way")
        for job in under_way:
            jobs.cancel(self.session, job.id, f"cancelled by {self.comment.author} in a comment")
        return False, f"cancelled {self._links([job.id for job in under_way])}"

    def _baseline(self, command: Command) -> tuple[bool, str]:
        sha = command.sha or ""
        if sha in self.asked.refused:
            raise CommandRefused(self.asked.refused[sha])
        base = self.asked.baselines[sha]
        made = jobs.create(
            self.session,
            self.settings,
            self.project,
            kind="baseline",
            head_sha=self._head,
            base_sha=base,
            ref=self.pull_request.head_ref,
            pull_request=self.pull_request,
        )
        if not made:
            raise CommandRefused(f"commit {self._head[:10]} is compared with {base[:10]} already")
        then = _then([jobs.get(self.session, job_id) for job_id in made])
        return True, f"{self._links(made)} compares commit {self._head[:10]} with {base[:10]}{then}"

    def _accept(self, command: Command) -> tuple[bool, str]:
        override = overrides.accept(
            self.session,
            self.settings,
            self.project,
            head_sha=self._head,
            limit_key=command.limit_key,
            backend=command.backend,
            author=self.comment.author,
            reason=command.reason,
            source="comment",
            source_url=self.comment.html_url,
        )
        return False, f"accepted `{override.limit_key}` for commit {self._head[:10]}"


def _then(made: list[Job]) -> str:
    return ", once that is approved" if any(job.state == "awaiting_approval" for job in made) else ""
