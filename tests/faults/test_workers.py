"""Workers that are late, that say everything twice, and that go by one name."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fault_service import canned_report


@pytest.fixture
def alone(service: Any) -> Any:
    """The service while its own worker is away; the tests speak to it as workers themselves."""
    service.kill("worker")
    yield service
    service.start("worker")


class Worker:
    """A worker by hand, over HTTP."""

    def __init__(self, service: Any, name: str) -> None:
        headers = {"Authorization": f"Bearer {service.environment['GPROJCI_WORKER_TOKEN']}"}
        self._client = httpx.Client(base_url=f"{service.url}/api/v1/worker", headers=headers, timeout=30)
        self.name, self.boot_id = name, uuid.uuid4().hex
        about = {"hardware": "cpu", "device": "cpu", "device_name": "by hand"}
        self.post("/hello", name=name, boot_id=self.boot_id, **about).raise_for_status()

    def post(self, path: str, **body: Any) -> httpx.Response:
        """A request."""
        return self._client.post(path, json=body)

    def claim(self) -> dict[str, Any]:
        """The attempt that it gets."""
        claim = {"worker": self.name, "boot_id": self.boot_id, "claim_id": uuid.uuid4().hex}
        answer = self.post("/claim", **claim)
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["attempt"])

    def report(self, attempt: dict[str, Any]) -> httpx.Response:
        """Ends an attempt."""
        manifests = {"head": MANIFEST, "base": None}
        body = {"status": "measured", "report": canned_report(), "manifests": manifests, "builds": [], "steps": []}
        return self.post(f"/attempts/{attempt['id']}/report", fencing_token=attempt["fencing_token"], **body)


MANIFEST = """
[backends.tiny]
entry = "tiny_kernel:x"
[accuracy]
inputs = ["synthetic:random?seq=64&heads=1"]
[gate]
dq_error_ceiling = 0.01
"""


def test_a_report_that_comes_many_times_at_once_is_stored_once(alone: Any) -> None:
    began, sha = time.monotonic(), alone.push()
    alone.wait("the job is queued", lambda: alone.rows("SELECT 1 FROM job WHERE head_sha = %s", sha))
    worker = Worker(alone, "many")
    attempt = worker.claim()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: worker.report(attempt), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert alone.ends_well(sha, began) == [("reported", None)]


def test_a_late_report_is_evidence_and_the_second_worker_has_the_result(alone: Any) -> None:
    began, sha = time.monotonic(), alone.push()
    alone.wait("the job is queued", lambda: alone.rows("SELECT 1 FROM job WHERE head_sha = %s", sha))
    late, second = Worker(alone, "late"), Worker(alone, "second")
    lost = late.claim()
    alone.wait(
        "its lease runs out", lambda: alone.rows("SELECT 1 FROM job WHERE head_sha = %s AND state = 'queued'", sha)
    )
    attempt = second.claim()
    assert attempt["fencing_token"] > lost["fencing_token"]
    assert late.report(lost).json()["accepted"] is False
    assert late.report(lost).json()["accepted"] is False
    assert late.report({**lost, "fencing_token": attempt["fencing_token"]}).status_code == 409
    assert second.report(attempt).json()["accepted"] is True
    assert alone.ends_well(sha, began) == [("lost", "lost_worker"), ("reported", None)]
    (kept,) = alone.rows("SELECT count(*) FROM report JOIN job ON job.id = job_id WHERE head_sha = %s", sha)
    assert kept == (2,)


def test_of_two_workers_with_one_name_the_first_gets_nothing_more(alone: Any) -> None:
    """They may stand on one GPU, or on two; either way nobody could tell their attempts apart."""
    began, sha = time.monotonic(), alone.push()
    alone.wait("the job is queued", lambda: alone.rows("SELECT 1 FROM job WHERE head_sha = %s", sha))
    first = Worker(alone, "twin")
    lost = first.claim()
    second = Worker(alone, "twin")
    body = {"fencing_token": lost["fencing_token"], "step": "run", "steps": []}
    assert first.post(f"/attempts/{lost['id']}/heartbeat", **body).json()["error"] == "LeaseLost"
    refused = first.post("/claim", worker="twin", boot_id=first.boot_id, claim_id=uuid.uuid4().hex)
    assert (refused.status_code, refused.json()["error"]) == (409, "WorkerReplaced")
    attempt = second.claim()
    assert second.report(attempt).json()["accepted"] is True
    assert alone.ends_well(sha, began) == [("lost", "lost_worker"), ("reported", None)]


def test_the_first_of_two_workers_with_one_name_stops_and_says_why(service: Any) -> None:
    began = time.monotonic()
    with service.held("build"):
        sha = service.push()
        service.reached(sha, "build")
        first = service.processes["worker"]
        service.start("worker")  # another one on the same host
        log, said = (
            service.directory / "logs" / "worker.log",
            "another worker has been started under the name 'gpu-host'",
        )
        service.wait("the first says so", lambda: said in log.read_text())
        service.wait("what it measured is stopped", lambda: len(service.measuring()) <= 1)
    assert service.ends_well(sha, began) == [("lost", "lost_worker"), ("reported", None)]
    assert service.ends_well(service.push(), began) == [("reported", None)], (
        "the first takes no messages from the second"
    )
    first.kill()
    first.wait(timeout=30)
