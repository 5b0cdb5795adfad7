"""The client of GitHub against a server that answers as GitHub does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gprojci_service.github.client import Recorder, TokenClient, connect
from gprojci_service.github.tasks import report_to_github
from gprojci_service.models import GithubReport


class StandIn(ThreadingHTTPServer):
    """Answers with the statuses it was told, and keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, object]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, {key.lower(): value for key, value in self.headers.items()}, body))
        status, headers = self.server.answers.pop(0) if self.server.answers else (201, {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b'{"message": "as told"}')

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def github() -> Iterator[StandIn]:
    server = StandIn()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_status_is_sent_as_github_documents_it(github):
    answer = TokenClient(github.url, "secret").post("commit_status", "/repos/o/r/statuses/abc", {"state": "success"})
    assert answer.outcome == "sent"
    ((path, headers, body),) = github.requests
    assert (path, body) == ("/repos/o/r/statuses/abc", {"state": "success"})
    assert headers["authorization"] == "Bearer secret"
    assert headers["accept"] == "application/vnd.github+json"
    assert headers["x-github-api-version"] == "2022-11-28"


@pytest.mark.parametrize(
    ("status", "headers", "outcome"),
    [
        (401, {}, "refused"),
        (404, {}, "refused"),
        (422, {}, "refused"),
        (403, {}, "refused"),
        (403, {"x-ratelimit-remaining": "0"}, "again"),
        (403, {"retry-after": "60"}, "again"),
        (429, {}, "again"),
        (500, {}, "again"),
        (502, {}, "again"),
    ],
)
def test_passing_faults_are_told_from_refusals(github, status, headers, outcome):
    github.answers = [(status, headers)]
    answer = TokenClient(github.url, "secret").post("commit_status", "/repos/o/r/statuses/abc", {})
    assert (answer.outcome, f"HTTP {status}" in answer.detail) == (outcome, True)


def test_an_outage_is_a_passing_fault():
    assert TokenClient("http://127.0.0.1:9", "secret").post("commit_status", "/", {}).outcome == "again"


def test_a_personal_token_creates_no_check_runs(github):
    answer = TokenClient(github.url, "secret").post("check_run", "/repos/o/r/check-runs", {})
    assert answer.outcome == "recorded"
    assert "GitHub App" in answer.detail
    assert github.requests == []


def test_without_credentials_nothing_is_sent(settings):
    assert isinstance(connect(settings), Recorder)
    assert "no GitHub credentials" in connect(settings).post("commit_status", "/", {}).detail


def test_an_outage_delays_a_report_and_loses_none(service, push_payload, github):
    from pydantic import SecretStr

    service.settings.github_token, service.settings.github_api_url = SecretStr("secret"), github.url
    github.answers = [(502, {}), (201, {})]
    service.deliver("push", push_payload())
    service.work_off()
    with service.context.database.session(writes=False) as session:
        report = session.query(GithubReport).one()
    assert (report.state, report.attempts) == ("pending", 1)
    report_to_github(service.context, report.id)
    report_to_github(service.context, report.id)
    with service.context.database.session(writes=False) as session:
        report = session.query(GithubReport).one()
    assert (report.state, report.attempts, len(github.requests)) == ("sent", 2, 2)
