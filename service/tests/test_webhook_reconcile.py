"""Reconcile against a server that answers as GitHub does: what lost webhooks were about is made up for, once."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from gprojci_service import queue
from gprojci_service.github.client import Recorder, TokenClient
from gprojci_service.github.comments import MARK
from gprojci_service.github.rest import Failure
from gprojci_service.models import Job, Project, PullRequest, PullRequestComment
from gprojci_service.webhooks import reconcile as lost
from gprojci_service.webhooks.schemas import PullRequestAsked
from gprojci_service.webhooks.tasks import reconcile

HEAD, BASE, OTHER, MAIN = "a" * 40, "b" * 40, "c" * 40, "d" * 40
NOW = datetime.now(UTC)


class GitHub(ThreadingHTTPServer):
    """Repositories with a default branch and pull requests, paged as GitHub pages them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pull_requests: list[dict[str, Any]] = []
        self.merge_groups: dict[str, str] = {}
        """Heads by branch."""
        self.comments: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str | None]] = []
        self.instead: dict[str, tuple[int, bytes]] = {}
        """Answers to paths that begin like this."""

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        if path == "/repos/o/r/branches/main":
            return {"name": "main", "commit": {"sha": MAIN, "commit": {"message": "A change"}}, "protected": True}
        if path == "/repos/o/r/git/matching-refs/heads/gh-readonly-queue/main/":
            named = self.merge_groups.items()
            return [{"ref": f"refs/heads/{name}", "object": {"type": "commit", "sha": sha}} for name, sha in named]
        if path == "/repos/o/r/issues/comments":
            assert (query["sort"], query["direction"], query["per_page"]) == (["created"], ["desc"], ["100"])
            return [one for one in self.comments if one["updated_at"] >= query["since"][0]][::-1]
        if path == "/repos/o/r/pulls":
            page, size = int(query["page"][0]), int(query["per_page"][0])
            listed = [entry for entry in self.pull_requests if entry["state"] == query["state"][0]]
            return listed[(page - 1) * size : page * size]
        number = path.removeprefix("/repos/o/r/pulls/")
        return next((entry for entry in self.pull_requests if str(entry["number"]) == number), None)


class Handler(BaseHTTPRequestHandler):
    server: GitHub

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["authorization"]))
        address = urlsplit(self.path)
        told = [answer for path, answer in self.server.instead.items() if address.path.startswith(path)]
        found = self.server.answer(address.path, parse_qs(address.query))
        status, body = told[0] if told else (404 if found is None else 200, json.dumps(found).encode())
        self.send_response(status)
        if status == 301:
            self.send_header("location", body.decode())
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def github() -> Iterator[GitHub]:
    """GitHub, on loopback."""
    server = GitHub()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def settings(settings, github):
    """Settings with a token for it."""
    settings.github_token, settings.github_api_url = SecretStr("secret"), f"http://127.0.0.1:{github.server_port}"
    return settings


@pytest.fixture
def service(service, push_payload):
    """The service with one project, known for days, whose default branch's head has its job."""
    service.deliver("push", push_payload(MAIN))
    service.work_off()
    with service.context.database.session(writes=True) as session:
        session.scalars(select(Project)).one().created_at = NOW - timedelta(days=9)
    return service


def pull_request(head: str = HEAD, *, number: int = 7, fork: bool = False, **changes: Any) -> dict[str, Any]:
    """An entry of GitHub's list of pull requests."""
    return {
        "number": number,
        "title": "A change",
        "state": "open",
        "draft": False,
        "user": {"login": "ben"},
        "html_url": f"https://github.com/o/r/pull/{number}",
        "updated_at": (NOW - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "head": {"sha": head, "ref": "topic", "repo": {"id": 99 if fork else 42}},
        "base": {"sha": OTHER, "ref": "main", "repo": {"id": 42}},  # the base branch has moved on
        **changes,
    }


def ago(minutes: float) -> str:
    """A moment so many minutes ago, as GitHub writes it."""
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def comment(
    number: int = 1, body: str = "/gprojci run", *, on: str = "pull", minutes: float = 5, **changes: Any
) -> Any:
    """An entry of GitHub's list of comments, of so many minutes ago."""
    moment = ago(minutes)
    return {
        "id": number,
        "body": body,
        "html_url": f"https://github.com/o/r/{on}/7#issuecomment-{number}",
        "issue_url": "https://api.github.com/repos/o/r/issues/7",
        "user": {"login": "ben", "type": "User"},
        "created_at": moment,
        "updated_at": moment,
        "author_association": "NONE",
        **changes,
    }


def comments_taken(service) -> list[tuple[int, int, str, list[str]]]:
    """GitHub's number, pull request, author and commands of each, in the order in which they are carried out."""
    with service.context.database.session(writes=False) as session:
        rows = session.scalars(select(PullRequestComment).order_by(PullRequestComment.id))
        return [(row.github_id, row.number, row.author, row.lines) for row in rows]


def jobs_of_pull_requests(service) -> list[tuple[str, str]]:
    """Head and state of each, newest first."""
    return [(job["head_sha"], job["state"]) for job in service.jobs() if job["kind"] == "pull_request"]


def test_what_is_missing_is_made_once(service, github):
    github.pull_requests = [pull_request(), pull_request(OTHER, number=8, fork=True)]
    reconcile(service.context)
    made = service.jobs()
    assert jobs_of_pull_requests(service) == [(OTHER, "awaiting_approval"), (HEAD, "queued")]
    reconcile(service.context)
    assert service.jobs() == made
    paths = {re.sub(r"since=[-\d]{10}T00:00:00Z", "since=midnight", path) for path, _ in github.requests}
    assert paths == {
        "/repos/o/r/branches/main",
        "/repos/o/r/pulls?state=open&per_page=100&page=1",
        "/repos/o/r/git/matching-refs/heads/gh-readonly-queue/main/",
        "/repos/o/r/issues/comments?sort=created&direction=desc&since=midnight&per_page=100",
    }
    assert {authorization for _, authorization in github.requests} == {"Bearer secret"}


def test_commands_that_were_lost_are_carried_out_once_and_in_order(service, github, caplog):
    github.comments = [comment(5), comment(9, "/gprojci cancel")]
    reconcile(service.context)
    reconcile(service.context)
    told = [(5, 7, "ben", ["/gprojci run"]), (9, 7, "ben", ["/gprojci cancel"])]
    assert comments_taken(service) == told
    assert [record.message for record in caplog.records if "comment" in record.message] == [
        "project o/r: webhooks were lost; comment(s) [5, 9] carried out"
    ]
    sent = service.context.queue.length(queue.SERVICE_QUEUE)
    assert sent >= 2
    github.comments.append(comment(12))
    event = {"action": "created", "issue": {"number": 7, "pull_request": {}}, "comment": github.comments[-1]}
    event |= {"sender": {"login": "ben"}, "repository": {"id": 42}}
    service.deliver("issue_comment", event)
    service.work_off()
    reconcile(service.context)
    assert [number for number, *_ in comments_taken(service)] == [5, 9, 12]


@pytest.mark.parametrize(
    "asks_nothing",
    [
        lambda: comment(minutes=0.5),  # its webhook is on the way
        lambda: comment(minutes=60 * 24 * 3),  # of before yesterday
        lambda: comment(on="issues"),
        lambda: comment(body="looks good"),
        lambda: comment(user={"login": "somebody[bot]", "type": "Bot"}),
        lambda: comment(user=None),
        lambda: comment(updated_at=ago(minutes=1)),  # edited: who knows what it said
        lambda: comment(body=f"/gprojci run\n{MARK}"),
    ],
)
def test_what_is_no_command_of_a_webhook_is_none_here(service, github, asks_nothing):
    github.comments = [asks_nothing()]
    reconcile(service.context)
    assert comments_taken(service) == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((403, b'{"message": "Resource not accessible"}'), "Resource not accessible"),
        ((200, b'[{"id": 7}]'), "0.created_at: Field required"),
    ],
)
def test_comments_that_may_not_be_read_keep_nothing_else(service, github, caplog, answer, words):
    github.instead = {"/repos/o/r/issues/comments": answer}
    github.pull_requests = [pull_request()]
    reconcile(service.context)
    assert jobs_of_pull_requests(service) == [(HEAD, "queued")]
    assert words in caplog.text
    assert "project o/r: lost commands are not looked for" in caplog.text


def test_commands_of_before_the_project_was_measured_here_are_left_alone(service, github):
    with service.context.database.session(writes=True) as session:
        session.scalars(select(Project)).one().created_at = datetime.now(UTC) - timedelta(minutes=3)
    github.comments = [comment(minutes=4), comment(2, minutes=2)]
    reconcile(service.context)
    assert [number for number, *_ in comments_taken(service)] == [2]


def test_a_push_that_was_lost_is_measured(service, github):
    newer = {"commit": {"sha": OTHER}}
    github.instead = {"/repos/o/r/branches/main": (200, json.dumps(newer).encode())}
    reconcile(service.context)
    reconcile(service.context)
    lost_one, first = service.jobs()
    assert (lost_one["kind"], lost_one["head_sha"], lost_one["ref"]) == ("push", OTHER, "main")
    assert (lost_one["state"], first["state"]) == ("queued", "queued")


def test_the_job_of_a_merge_group_is_not_that_of_the_branch(service, github):
    with service.context.database.session(writes=True) as session:
        job = session.scalars(select(Job)).one()
        job.kind, job.ref, job.dedup_key = "merge_group", "gh-readonly-queue/main/pr-7", "of a merge group"
    reconcile(service.context)
    assert [(job["kind"], job["head_sha"]) for job in service.jobs()] == [("push", MAIN), ("merge_group", MAIN)]


def test_a_merge_group_that_was_lost_is_measured_and_one_that_is_gone_is_not(service, github, push_payload):
    branch = f"gh-readonly-queue/main/pr-7-{MAIN}"
    github.merge_groups = {branch: HEAD}
    reconcile(service.context)
    reconcile(service.context)
    late = {"head_sha": HEAD, "head_ref": f"refs/heads/{branch}", "base_sha": BASE, "base_ref": "refs/heads/main"}
    payload = {"action": "checks_requested", "merge_group": late, "repository": push_payload()["repository"]}
    service.deliver("merge_group", payload)
    service.work_off()
    made, _ = service.jobs()
    assert (made["kind"], made["head_sha"], made["base_sha"]) == ("merge_group", HEAD, MAIN)
    assert (made["ref"], made["state"]) == (branch, "queued")
    github.merge_groups = {}
    reconcile(service.context)
    assert [(job["kind"], job["state"]) for job in service.jobs()] == [("merge_group", "cancelled"), ("push", "queued")]


@pytest.mark.parametrize(
    ("now_is", "jobs"),
    [
        (pull_request(), [(HEAD, "queued")]),
        (pull_request(title="Another title"), [(HEAD, "queued")]),
        (pull_request(OTHER), [(OTHER, "queued"), (HEAD, "cancelled")]),
        (pull_request(base={"sha": BASE, "ref": "release"}), [(HEAD, "queued")]),  # the same commit: nothing to measure
        (pull_request(base={"sha": OTHER, "ref": "release"}), [(HEAD, "queued"), (HEAD, "cancelled")]),
        (pull_request(draft=True), [(HEAD, "draft"), (HEAD, "cancelled")]),
        (pull_request(state="closed", merged=False), [(HEAD, "cancelled")]),
        (pull_request(state="closed", merged=True), [(HEAD, "cancelled")]),
    ],
)
def test_a_pull_request_is_brought_to_what_it_is_now(service, github, pull_request_payload, now_is, jobs):
    service.deliver("pull_request", pull_request_payload())
    service.work_off()
    github.pull_requests = [now_is]
    reconcile(service.context)
    assert jobs_of_pull_requests(service) == jobs
    with service.context.database.session(writes=False) as session:
        known = session.scalars(select(PullRequest)).one()
    state = "merged" if now_is.get("merged") else now_is["state"]
    assert (known.state, known.draft, known.head_sha) == (state, now_is["draft"], now_is["head"]["sha"])
    reconcile(service.context)
    assert jobs_of_pull_requests(service) == jobs


@pytest.mark.parametrize("before", [{"state": "closed"}, {"draft": True}])
def test_a_pull_request_that_came_back_is_measured(service, github, pull_request_payload, before):
    service.deliver("pull_request", pull_request_payload())
    service.deliver(
        "pull_request", pull_request_payload("converted_to_draft" if "draft" in before else "closed", **before)
    )
    service.work_off()
    github.pull_requests = [pull_request()]
    reconcile(service.context)
    newest, *others = jobs_of_pull_requests(service)
    assert (newest, set(others)) == ((HEAD, "queued"), {(HEAD, "cancelled")})


def test_a_job_cancelled_by_hand_is_not_made_again(service, github, pull_request_payload):
    service.deliver("pull_request", pull_request_payload())
    service.work_off()
    service.client.post(f"/api/v1/jobs/{service.jobs()[0]['id']}/cancel", json={}, headers=service.write_headers)
    github.pull_requests = [pull_request()]
    reconcile(service.context)
    assert jobs_of_pull_requests(service) == [(HEAD, "cancelled")]


def test_a_measurement_of_a_draft_that_was_asked_for_goes_on(service, github, pull_request_payload):
    service.deliver("pull_request", pull_request_payload(draft=True))
    service.deliver(
        "check_suite",
        {"action": "rerequested", "check_suite": {"head_sha": HEAD}, "repository": {"id": 42}},
    )
    service.work_off()
    github.pull_requests = [pull_request(draft=True)]
    reconcile(service.context)
    assert jobs_of_pull_requests(service) == [(HEAD, "queued")]


@pytest.mark.parametrize("age", [timedelta(seconds=5), timedelta(days=30)])
def test_what_has_its_webhook_on_the_way_or_is_older_than_the_project_is_left_alone(service, github, age):
    github.pull_requests = [pull_request(updated_at=(datetime.now(UTC) - age).isoformat())]
    reconcile(service.context)
    assert jobs_of_pull_requests(service) == []


def test_a_webhook_that_came_while_github_was_asked_counts_more(service, github, pull_request_payload):
    asked_at = datetime.now(UTC)
    service.deliver("pull_request", pull_request_payload())
    service.work_off()
    seen = lost.Seen(asked_at, MAIN, [PullRequestAsked.model_validate(pull_request(OTHER))], [], [])
    with service.context.database.session(writes=True) as session:
        project = session.scalars(select(Project)).one()
        assert lost.catch_up(session, service.settings, project, seen) == []
    assert jobs_of_pull_requests(service) == [(HEAD, "queued")]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_lost_late_and_doubled_webhooks_end_in_what_github_says(service, github, pull_request_payload):
    """Every tenth delivery is lost, some come twice, and neighbours change places; then GitHub is asked."""
    chance = random.Random(7)
    now_is: dict[int, dict[str, Any]] = {}
    deliveries = []
    for second in range(45):
        number = chance.randint(1, 5)
        is_new = number not in now_is
        before = now_is.get(number, pull_request(f"{second:040x}", number=number))
        action = "opened" if is_new else chance.choice(["synchronize", "synchronize", "closed", "reopened"])
        if not is_new and (before["state"] == "closed") != (action == "reopened"):
            continue
        changes: dict[str, Any] = {"state": "closed" if action == "closed" else "open"}
        changes["updated_at"] = (NOW - timedelta(hours=1) + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if action == "synchronize":
            changes["head"] = {**before["head"], "sha": f"{second:040x}"}
        now_is[number] = {**before, **changes}
        pushed = {"before": before["head"]["sha"]} if action == "synchronize" else {}
        described = {name: value for name, value in now_is[number].items() if name != "head"}
        payload = pull_request_payload(action, now_is[number]["head"]["sha"], **described)
        deliveries.append({**payload, "number": number, **pushed})
    received = [payload for index, payload in enumerate(deliveries) if index % 10 != 9]
    received = [payload for payload in received for _ in range(1 + (chance.random() < 0.2))]
    received.sort(key=lambda payload: deliveries.index(payload) + chance.uniform(0, 4))
    for payload in received:
        service.deliver("pull_request", payload)
    service.work_off()
    github.pull_requests = list(now_is.values())
    reconcile(service.context)
    with service.context.database.session(writes=False) as session:
        known = {row.number: (row.state, row.head_sha) for row in session.scalars(select(PullRequest))}
        is_open = Job.state == "queued"
        jobs = session.execute(select(PullRequest.number, Job.head_sha).join(Job).where(is_open)).all()
    assert known == {number: (entry["state"], entry["head"]["sha"]) for number, entry in now_is.items()}
    assert sorted(jobs) == sorted((number, head) for number, (state, head) in known.items() if state == "open")


def test_every_page_is_read(service, github):
    github.pull_requests = [pull_request(f"{number:040x}", number=number) for number in range(1, 202)]
    reconcile(service.context)
    assert len([path for path, _ in github.requests if "/pulls?" in path]) == 3
    with service.context.database.session(writes=False) as session:
        assert len(session.scalars(select(Job).where(Job.kind == "pull_request")).all()) == 201


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/repos/o/r/branches", (502, b"bad gateway"), "HTTP 502: bad gateway"),
        ("/repos/o/r/pulls", (403, b'{"message": "API rate limit exceeded"}'), "rate limit"),
        ("/repos/o/r/pulls", (200, b"<html>"), "JSON"),
        ("/repos/o/r/pulls", (200, b'[{"number": 7}]'), "0.title: Field required"),
        ("/repos/o/r/branches", (200, b'{"commit": {"sha": "main"}}'), "commit.sha"),
    ],
)
def test_without_a_usable_answer_nothing_is_changed(service, github, caplog, path, answer, words):
    github.pull_requests, github.instead = [pull_request()], {path: answer}
    with caplog.at_level(logging.WARNING):
        reconcile(service.context)
    assert jobs_of_pull_requests(service) == []
    assert f"project o/r is not compared with GitHub: {path}" in caplog.text
    assert words in caplog.text


def test_one_project_without_answer_holds_up_no_other(service, github, push_payload):
    payload = push_payload()
    payload["repository"] |= {"id": 1, "full_name": "a/gone"}  # asked about before o/r
    service.deliver("push", payload)
    service.work_off()
    github.pull_requests = [pull_request()]
    reconcile(service.context)
    assert github.requests[0][0] == "/repos/a/gone/branches/main"
    assert jobs_of_pull_requests(service) == [(HEAD, "queued")]


def test_an_archived_project_is_not_asked_about(service, github):
    with service.context.database.session(writes=True) as session:
        session.scalars(select(Project)).one().archived_at = NOW
    reconcile(service.context)
    assert github.requests == []


def test_a_repository_registered_by_hand_is_not_asked_about(service, github):
    with service.context.database.session(writes=True) as session:
        session.scalars(select(Project)).one().github_id = None
    reconcile(service.context)
    assert github.requests == []


def test_without_credentials_nobody_is_asked(service, github):
    github.pull_requests = [pull_request()]
    reconcile(dataclasses.replace(service.context, github=Recorder()))
    assert github.requests == []
    with pytest.raises(Failure, match="no GitHub credentials"):
        Recorder().get("/repos/o/r/pulls")


def test_the_client_follows_a_renamed_repository_and_names_an_outage(github):
    address = f"http://127.0.0.1:{github.server_port}"
    github.instead = {"/repos/o/old/branches/main": (301, f"{address}/repos/o/r/branches/main".encode())}
    assert TokenClient(address, "secret").get("/repos/o/old/branches/main")["commit"]["sha"] == MAIN
    with pytest.raises(Failure, match="ConnectError"):
        TokenClient("http://127.0.0.1:9", "secret").get("/repos/o/r")


def test_the_timetable_has_it_only_with_credentials(monkeypatch, settings):
    monkeypatch.setenv("GPROJCI_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("GPROJCI_BROKER_URL", settings.broker_url)
    monkeypatch.setenv("GPROJCI_WEBHOOK_SECRET", settings.webhook_secret.get_secret_value())
    from gprojci_service import task_worker

    assert queue.RECONCILE in task_worker.app.tasks
    settings.reconcile_seconds = 90
    entry = task_worker.timetable(settings)["reconcile"]
    assert entry.pop("schedule").run_every == timedelta(seconds=90)
    assert entry == {"task": queue.RECONCILE, "options": {"expires": 90}}
    settings.github_token = None
    assert set(task_worker.timetable(settings)) == {"reaper", "schedules"}
