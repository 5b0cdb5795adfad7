"""What the service's tests share: the application over real servers, webhooks as GitHub sends them, reports."""

from __future__ import annotations

import base64
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from gprojci_service.access import service as access
from gprojci_service.app import create_app
from gprojci_service.context import Context
from gprojci_service.github.signature import sign
from gprojci_service.settings import Settings
from gprojci_service.tasks import TASKS
from gprojci_suite.contract.report import Report

sys.path.insert(0, str(Path(__file__).parent))

import report_parts as parts
from github_server import GitHubServer, start
from test_pages_seed import seeding

HEAD, BASE, OTHER = "a" * 40, "b" * 40, "c" * 40
CASE = "1x4x1024x64.causal.bfloat16"
MANIFEST = """
[build]
path = "."
[backends.gproj]
entry = "gproj:attention"
[accuracy]
inputs = ["late-keybias"]
[gate]
dq_error_ceiling = 0.0035
dq_error_ratio = 1.05
kernel_time_increase = 0.1
"""


class Service:
    """The application with what a test does to it: deliver webhooks, run tasks, act as a worker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = create_app(settings)
        self.client = TestClient(self.app, raise_server_exceptions=False)
        self.context: Context = self.app.state.context
        with self.context.database.session(writes=True) as session:
            self.worker_headers = {"Authorization": f"Bearer {access.create_token(session, 'w', 'worker')[1]}"}
            self.write_headers = {"Authorization": f"Bearer {access.create_token(session, 'u', 'admin')[1]}"}

    def deliver(
        self, event: str, payload: Any, *, delivery: str | None = None, signature: str | None = None
    ) -> Response:
        """Sends a webhook, signed unless a signature is given."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        headers = {
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery or str(uuid.uuid4()),
            "X-Hub-Signature-256": signature or sign(body, self.settings.webhook_secret.get_secret_value()),
        }
        return self.client.post("/webhooks/github", content=body, headers=headers)

    def work_off(self) -> None:
        """Runs the service's tasks that wait in Redis, as the task worker would."""
        with self.context.queue.celery.connection_for_read() as connection:
            while raw := connection.default_channel.client.rpop("service"):
                message = json.loads(raw)
                arguments = json.loads(base64.b64decode(message["body"]))[0]
                TASKS[message["headers"]["task"]](self.context, *arguments)

    def worker(self, path: str, body: dict[str, Any]) -> Response:
        """Calls the worker API."""
        return self.client.post(f"/api/v1/worker{path}", json=body, headers=self.worker_headers)

    def hello(self, name: str = "host-1", boot_id: str = "first-boot", hardware: str = "cpu") -> Response:
        """A worker says hello."""
        body = {"name": name, "hardware": hardware, "device": "cpu", "device_name": "a CPU", "boot_id": boot_id}
        return self.worker("/hello", body)

    def claim(self, name: str = "host-1", claim_id: str | None = None, job_id: int | None = None) -> Response:
        """A worker claims."""
        return self.worker("/claim", {"worker": name, "claim_id": claim_id or uuid.uuid4().hex, "job_id": job_id})

    def measure(self, outcome: Callable[[int, int], dict[str, Any] | str]) -> list[tuple[int, int]]:
        """Claims and answers every job that waits, and works off what follows; commits are numbers, twice over.

        `outcome(number of the head, effort)` gives a report, or the failure kind. Returns what it was asked for.
        """
        asked = []
        while (answer := self.claim()).status_code == 200:
            job, attempt = answer.json()["job"], answer.json()["attempt"]
            number = int(job["head_sha"][:2])
            asked.append((number, job["effort"]))
            facts = {"message": "m", "author_name": "A", "author_email": "a@b.c", "parents": []}
            commits = {"head": job["head_sha"], "base": job["base_sha"] or f"{number - 1:02d}" * 20}
            resolved = {
                name: {"sha": sha, "authored_at": "2026-01-02T03:04:05Z", **facts} for name, sha in commits.items()
            }
            held = {"fencing_token": attempt["fencing_token"]}
            self.worker(f"/attempts/{attempt['id']}/heartbeat", {**held, "step": "run", "resolved": resolved})
            found = outcome(number, job["effort"])
            end = {"status": "measured", "report": found} if isinstance(found, dict) else {"status": found}
            end["manifests"] = {"head": MANIFEST, "base": MANIFEST}
            taken = self.worker(f"/attempts/{attempt['id']}/report", {**held, **end})
            assert taken.status_code == 200, taken.text
            self.work_off()
        return asked

    def job(self, job_id: int) -> dict[str, Any]:
        """A job as the API shows it."""
        answer = self.client.get(f"/api/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, newest first."""
        return list(self.client.get("/api/v1/jobs").json())


@pytest.fixture
def service(settings: Settings) -> Iterator[Service]:
    """The application over either database and a real Redis, in one event loop as in a web process."""
    made = Service(settings)
    with made.client:
        yield made
    made.context.database.close()


@pytest.fixture
def github() -> Iterator[GitHubServer]:
    """A stand-in for GitHub; a request that GitHub's description does not allow fails the test."""
    server, stop = start()
    yield server
    stop()
    assert server.violations == []


@pytest.fixture
def push_payload() -> Callable[..., dict[str, Any]]:
    """Makes the payload of a push event."""

    def make(after: str = HEAD, **changes: Any) -> dict[str, Any]:
        commit = {
            "id": after,
            "message": "A change",
            "timestamp": "2026-01-02T03:04:05+01:00",
            "author": {"name": "Ada", "email": "ada@example.com"},
        }
        return {
            "ref": "refs/heads/main",
            "before": BASE,
            "after": after,
            "deleted": False,
            "head_commit": commit,
            "repository": repository_payload(),
            **changes,
        }

    return make


@pytest.fixture
def pull_request_payload() -> Callable[..., dict[str, Any]]:
    """Makes the payload of a pull_request event."""

    def make(action: str = "opened", head: str = HEAD, *, fork: bool = False, **changes: Any) -> dict[str, Any]:
        head_repository = {**repository_payload(), "id": 99} if fork else repository_payload()
        return {
            "action": action,
            "number": 7,
            "repository": repository_payload(),
            "pull_request": {
                "title": "A change",
                "state": "open",
                "merged": False,
                "draft": False,
                "user": {"login": "ben"},
                "html_url": "https://github.com/o/r/pull/7",
                "head": {"sha": head, "ref": "topic", "repo": head_repository},
                "base": {"sha": BASE, "ref": "main", "repo": repository_payload()},
                **changes,
            },
        }

    return make


def repository_payload() -> dict[str, Any]:
    """The repository of every payload."""
    return {
        "id": 42,
        "full_name": "o/r",
        "clone_url": "https://github.com/o/r.git",
        "html_url": "https://github.com/o/r",
        "default_branch": "main",
        "private": False,
    }


@pytest.fixture
def make_report() -> Callable[..., dict[str, Any]]:
    """Makes a report that fits the contract, with the values a test is about."""

    def make(
        dq: float = 0.002,
        base_dq: float | None = 0.002,
        time: tuple[float, float] | None = (0.98, 1.02),
        **changes: Any,
    ) -> dict[str, Any]:
        revisions = {"head": dq} | ({"base": base_dq} if base_dq is not None else {})
        report = {
            "schema_version": 1,
            "created_at": "2026-01-02T03:04:05+00:00",
            "duration_seconds": 1.0,
            "seed": 0,
            "repro": "gprojci-suite bench",
            "ruler": {"version": "0.1.0", "revision": "f" * 40},
            "subjects": [_subject(revision) for revision in revisions],
            "environment": parts.environment("cpu-x86-64") | {"packages": {"torch": "2.13.0"}},
            "backends": [parts.backend("gproj", revision, "subject") for revision in revisions]
            + [parts.backend("sdpa-math", "ruler", "anchor")],
            "inputs": [parts.input_set("late-keybias")],
            "accuracy": parts.accuracy("late-keybias", revisions, spread=0.0),
            "throughput": None
            if time is None
            else {
                "measurements": [parts.measurement("gproj", revision, CASE, 0.1, 2) for revision in revisions],
                "comparisons": [parts.comparison("head", ("gproj", "base"), CASE, (time[0], sum(time) / 2, time[1]), 2)]
                if base_dq is not None
                else [],
            },
        }
        report |= changes
        Report.from_json(report)  # a fixture that breaks the contract proves nothing
        return report

    return make


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, dict[str, int]]]:
    """An instance with a project's life in it, and job numbers by name."""
    with seeding(tmp_path_factory.mktemp("pages")) as (app, seed):
        jobs = seed.everything() | seed.examples()
    with TestClient(app) as client:
        yield client, jobs


def _subject(revision: str) -> dict[str, Any]:
    commit = HEAD if revision == "head" else BASE
    return {"backend": "gproj", "revision": revision, "commit": commit, "build_key": "k", "entry": "gproj:attention"}
