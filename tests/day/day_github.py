"""GitHub's stand-in for a day: a repository with pull requests, a protected main branch and its merge queue.

It answers as `service/tests/github_server.py` does and holds the state behind the answers; what people do there it
tells the service by webhooks, signed, in the form of octokit's examples. Of the events that GitHub sends, those that an
App hears of its own check runs and comments are left out: the service ignores them.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
from day_clock import Clock
from day_history import Commit, History, Kernel
from day_storm import Storm
from github_examples import example
from github_server import INSTALLATION, Fault, GitHubServer, Handler, Refusal

from gprojci_service.github.signature import sign

NAME, NUMBER = "o/r", 42
STATUS = "gprojci/h200"
"""What the main branch requires."""
QUEUE = "gh-readonly-queue/main/"
DELAY_SECONDS = 0.2


@dataclass
class PullRequest:
    """A pull request of somebody who may write."""

    number: int
    title: str
    author: str
    head: str
    base: str
    updated: datetime
    state: str = "open"
    merged: bool = False

    @property
    def branch(self) -> str:
        return f"topic-{self.number}"


@dataclass
class Group:
    """A merge group: what main would be with this pull request merged."""

    number: int
    head: str
    base: str

    @property
    def branch(self) -> str:
        return f"{QUEUE}pr-{self.number}-{self.base}"


@dataclass
class Webhook:
    """A delivery on its way."""

    event: str
    payload: dict[str, Any]
    delivery: str = field(default_factory=lambda: str(uuid.uuid4()))


class DayGitHub(GitHubServer):
    """One repository, and what people do in it."""

    def __init__(self, clock: Clock, storm: Storm, secret: str) -> None:
        super().__init__()
        self.RequestHandlerClass = DayHandler
        self.clock, self.storm, self.secret = clock, storm, secret
        self.service_url = ""
        self.history = History()
        self.opened: dict[int, PullRequest] = {}
        self.groups: list[Group] = []
        self.commented: dict[int, tuple[str, datetime]] = {}
        """Who wrote a comment, and when; ours are not here."""
        self._held: list[Webhook] = []

    # What people do.

    def install(self) -> None:
        """Somebody installs the App on the repository."""
        payload = example("installation", "created")
        payload["installation"]["id"] = INSTALLATION
        payload["repositories"] = [{"id": NUMBER, "name": "r", "full_name": NAME, "private": False}]
        self._send("installation", payload)

    def commit(self, branch: str, message: str, kernel: Kernel, *parents: str, moment: datetime | None = None) -> str:
        """A commit on a branch, of which GitHub is not told yet."""
        return self.history.add(branch, Commit(message, parents, kernel, moment or self.clock.now())).sha

    def push_main(self, before: str) -> None:
        """Tells that main has a new head."""
        head = self.history.commits[self.history.branches["main"]]
        payload = example("push", ref="refs/heads/master")
        author = {"name": "Ada", "email": "ada@example.com", "username": "ada"}
        told = {"id": head.sha, "message": head.message, "timestamp": self.clock.real(head.moment), "author": author}
        payload |= {"ref": "refs/heads/main", "before": before, "after": head.sha, "deleted": False}
        payload |= {"head_commit": payload["head_commit"] | told, "commits": [payload["head_commit"] | told]}
        self._send("push", payload)

    def open_pull_request(self, number: int, title: str, kernel: Kernel) -> PullRequest:
        """Ben opens a pull request with one commit on top of main."""
        base = self.history.branches["main"]
        head = self.commit(f"topic-{number}", title, kernel, base)
        self.opened[number] = PullRequest(number, title, "ben", head, base, self.clock.now())
        self._tell(self.opened[number], "opened")
        return self.opened[number]

    def push_fix(self, pull_request: PullRequest, message: str, kernel: Kernel) -> None:
        """Ben pushes one commit more."""
        before = pull_request.head
        pull_request.head = self.commit(pull_request.branch, message, kernel, before)
        pull_request.updated = self.clock.now()
        self._tell(pull_request, "synchronize", before=before, after=pull_request.head)

    def comment(self, pull_request: PullRequest, author: str, body: str) -> int:
        """Somebody comments; returns the comment's number."""
        with self.lock:
            number = 9000 + len(self.comments)
            url = f"https://github.com/{NAME}/pull/{pull_request.number}#issuecomment-{number}"
            made = {"id": number, "body": body, "html_url": url, "created_at": self.clock.real(self.clock.now())}
            about = {"issue": pull_request.number, "performed_via_github_app": None}
            self.comments[number] = {**made, **about}
            self.commented[number] = (author, self.clock.now())
        payload = example("issue_comment", "created")
        payload["issue"] |= {"number": pull_request.number, "pull_request": {"html_url": url.partition("#")[0]}}
        payload["comment"] |= {**made, "user": payload["comment"]["user"] | {"login": author}}
        payload["sender"] |= {"login": author}
        self._send("issue_comment", payload)
        return number

    def enqueue(self, pull_request: PullRequest) -> None:
        """Merge when ready: refused while the required status of the head is not green.

        Raises:
            AssertionError: it is not.
        """
        state = self.status(pull_request.head)
        assert state == "success", f"{STATUS} is {state}: main is protected"
        base = self.history.branches["main"]
        message = f"Merge pull request #{pull_request.number}: {pull_request.title}"
        kernel = self.history.commits[pull_request.head].kernel
        group = Group(pull_request.number, "", base)
        group.head = self.commit(group.branch, message, kernel, base, pull_request.head)
        self.groups.append(group)
        self._tell_group(group, "checks_requested")

    def advance_queue(self) -> None:
        """Merges the first group if its required status is green, as GitHub does by itself."""
        if not self.groups or self.status(self.groups[0].head) != "success":
            return
        group = self.groups.pop(0)
        pull_request = self.opened[group.number]
        self.history.branches["main"] = group.head
        del self.history.branches[group.branch]
        pull_request.state, pull_request.merged, pull_request.updated = "closed", True, self.clock.now()
        self._tell_group(group, "destroyed", reason="merged")
        self._tell(pull_request, "closed")
        self.push_main(group.base)

    # What GitHub shows.

    def status(self, sha: str) -> str | None:
        """The newest state of the required status of a commit."""
        states = [one["state"] for one in self.statuses if (one["sha"], one["context"]) == (sha, STATUS)]
        return states[-1] if states else None

    def conclusions(self, sha: str) -> list[str | None]:
        """The conclusions of a commit's check runs; None of one that is not completed."""
        return [run.get("conclusion") for run in self.check_runs.values() if run["head_sha"] == sha]

    def reaction(self, comment: int) -> set[str]:
        """How the service reacted to a comment; GitHub keeps the same reaction of the same user once."""
        return {content for number, content in self.reactions if number == comment}

    def described(self, pull_request: PullRequest) -> dict[str, Any]:
        """A pull request as the API and the webhooks describe it."""
        repo = self.repository()
        return {
            "number": pull_request.number,
            "title": pull_request.title,
            "state": pull_request.state,
            "merged": pull_request.merged,
            "draft": False,
            "user": {"login": pull_request.author},
            "author_association": "MEMBER",
            "html_url": f"https://github.com/{NAME}/pull/{pull_request.number}",
            "updated_at": self.clock.real(pull_request.updated),
            "head": {"sha": pull_request.head, "ref": pull_request.branch, "repo": repo},
            "base": {"sha": pull_request.base, "ref": "main", "repo": repo},
        }

    def described_comment(self, number: int) -> dict[str, Any]:
        """A comment as the API describes it."""
        kept, (author, moment) = self.comments[number], self.commented[number]
        times = dict.fromkeys(("created_at", "updated_at"), self.clock.real(moment))
        issue = {"issue_url": f"https://api.github.com/repos/{NAME}/issues/{kept['issue']}"}
        user = {"login": author, "type": "User"}
        return {"id": number, "body": kept["body"], "html_url": kept["html_url"], "user": user, **issue, **times}

    def repository(self) -> dict[str, Any]:
        """The repository, as far as anybody reads it."""
        url = f"https://github.com/{NAME}"
        facts = {"id": NUMBER, "name": "r", "full_name": NAME, "private": False, "default_branch": "main"}
        return {**facts, "html_url": url, "clone_url": f"{url}.git"}

    # Webhooks.

    def _tell(self, pull_request: PullRequest, action: str, **more: Any) -> None:
        payload = example("pull_request", action)
        payload |= {"number": pull_request.number, **more}
        payload["pull_request"] |= self.described(pull_request)
        self._send("pull_request", payload)

    def _tell_group(self, group: Group, action: str, **more: Any) -> None:
        payload = example("merge_group", "checks_requested")
        about = {"head_sha": group.head, "head_ref": f"refs/heads/{group.branch}"}
        about |= {"base_sha": group.base, "base_ref": "refs/heads/main"}
        payload |= {"action": action, "merge_group": payload["merge_group"] | about, **more}
        self._send("merge_group", payload)

    def _send(self, event: str, payload: dict[str, Any]) -> None:
        """On this channel lost is for ever; delayed is behind the next one, or some minutes later."""
        if "repository" in payload:
            payload["repository"] |= self.repository()
            payload["installation"] = {"id": INSTALLATION}
        webhook, held, self._held = Webhook(event, payload), self._held, []
        fate = self.storm.fate("webhook")
        if self.storm.rages and event == "issue_comment" and len(self.commented) == 1:
            fate = "lost"  # there are too few for a tenth
        match fate:
            case "lost":
                pass
            case "delayed":
                self._held = [webhook]
            case "doubled":
                self._deliver(webhook)
                self._deliver(webhook)
            case _:
                self._deliver(webhook)
        for late in held:
            self._deliver(late)

    def deliver_late(self) -> None:
        """What was delayed arrives."""
        held, self._held = self._held, []
        for late in held:
            self._deliver(late)

    def _deliver(self, webhook: Webhook) -> None:
        body = json.dumps(webhook.payload).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/044aadd",
            "X-GitHub-Event": webhook.event,
            "X-GitHub-Delivery": webhook.delivery,
            "X-Hub-Signature-256": sign(body, self.secret),
        }
        answer = httpx.post(f"{self.service_url}/webhooks/github", content=body, headers=headers, timeout=30)
        assert answer.status_code == 202, answer.text


class DayHandler(Handler):
    """Answers from the day's state. Lost is a request that never arrives, doubled one whose answer is lost, so that it
    comes again, delayed one that others overtake."""

    server: DayGitHub

    def _serve(self) -> None:
        self._fate = self.server.storm.fate("github")
        if self._fate == "delayed":
            time.sleep(DELAY_SECONDS)
        super()._serve()

    def _fault(self, path: str) -> Fault | None:
        if self._fate in ("lost", "doubled"):
            return Fault(cut=True, after=self._fate == "doubled")
        return super()._fault(path)

    def repos_get_branch(self, values: dict[str, str], _query: Any, _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "contents", "read")
        if values["branch"] not in self.server.history.branches:
            raise Refusal(404, "Branch not found")
        sha = self.server.history.branches[values["branch"]]
        return 200, {"name": values["branch"], "commit": {"sha": sha}, "protected": True}

    def git_list_matching_refs(self, values: dict[str, str], _query: Any, _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "contents", "read")
        prefix = values["ref"].removeprefix("heads/")
        found = [(name, sha) for name, sha in self.server.history.branches.items() if name.startswith(prefix)]
        return 200, [{"ref": f"refs/heads/{name}", "object": {"type": "commit", "sha": sha}} for name, sha in found]

    def issues_list_comments_for_repo(
        self, values: dict[str, str], query: dict[str, str], _body: Any
    ) -> tuple[int, Any]:
        self._as_installation(values, "pull_requests", "read")
        assert (query["sort"], query["direction"]) == ("created", "desc")
        listed = [self.server.described_comment(number) for number in self.server.commented]
        return 200, [one for one in listed if one["updated_at"] >= query["since"]][::-1][: int(query["per_page"])]

    def pulls_list(self, values: dict[str, str], query: dict[str, str], _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "pull_requests", "read")
        size, page = int(query["per_page"]), int(query["page"])
        listed = [self.server.described(one) for one in self.server.opened.values() if one.state == query["state"]]
        return 200, listed[size * (page - 1) : size * page]

    def pulls_get(self, values: dict[str, str], _query: Any, _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "pull_requests", "read")
        if int(values["pull_number"]) not in self.server.opened:
            raise Refusal(404, "Not Found")
        return 200, self.server.described(self.server.opened[int(values["pull_number"])])
