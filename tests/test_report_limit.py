"""A report that is too long for the service ends its attempt, over a real socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from gprojci_service.access import service as access
from gprojci_service.app import create_app
from gprojci_service.settings import load_settings
from gprojci_workers import attempt
from gprojci_workers.api import Api
from gprojci_workers.lifeline import Lifeline
from gprojci_workers.settings import Settings as WorkerSettings

LIMIT = 4 * 2**20


@pytest.fixture
def at_service(sqlite_url: str, broker_url: str, tmp_path: Path) -> Iterator[tuple[httpx.Client, WorkerSettings]]:
    """A client with a writer's token of a served application, and a worker's settings for it."""
    app = create_app(
        load_settings(database_url=sqlite_url, broker_url=broker_url, webhook_secret="s" * 16, max_report_bytes=LIMIT)
    )
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        tokens = {scope: access.create_token(session, scope, scope)[1] for scope in ("worker", "write")}
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    headers = {"Authorization": f"Bearer {tokens['write']}"}
    with httpx.Client(base_url=f"{address}/api/v1", headers=headers) as client:
        yield (
            client,
            WorkerSettings(
                service_url=address,
                worker_token=tokens["worker"],
                broker_url=broker_url,
                device="cpu",
                cache_dir=tmp_path / "cache",
                worker_name="w",
            ),
        )
    server.should_exit = True
    thread.join(timeout=10)
    app.state.database.close()


def test_a_report_that_is_too_long_ends_its_attempt(at_service: tuple[httpx.Client, WorkerSettings]) -> None:
    client, worker = at_service
    client.post("/projects", json={"name": "o/r", "clone_url": "https://github.com/o/r.git"}).raise_for_status()
    (job,) = client.post("/jobs", json={"project": "o/r", "head_sha": "a" * 40}).raise_for_status().json()
    api = Api(worker)
    requests: list[str] = []
    api._client.event_hooks = {"request": [lambda request: requests.append(request.url.path)]}
    api.hello(worker, {}, patience=0)
    claimed = api.claim(job["id"])
    assert claimed is not None
    # The longest manifests, in characters of six bytes each, go with the refusal too.
    manifests = {"head": "\x01" * 200_000, "base": "\x01" * 200_000}
    with Lifeline(api, claimed["attempt"]) as lifeline:
        outcome = {"status": "measured", "report": {"padding": "x" * 8 * LIMIT}, "manifests": manifests}
        attempt.report(api, claimed, lifeline, outcome)
    sent = [path for path in requests if path.endswith("/report")]
    assert len(sent) == 2, "the report once, then why it was refused"
    found = client.get(f"/jobs/{job['id']}").json()
    assert [(entry["state"], entry["failure_kind"]) for entry in found["attempts"]] == [("failed", "runtime_error")]
    assert f"larger than {LIMIT} bytes (GPROJCI_MAX_REPORT_BYTES)" in found["detail"]


def test_the_limit_leaves_room_for_a_failed_attempt(sqlite_url: str, broker_url: str) -> None:
    with pytest.raises(Exception, match="GPROJCI_MAX_REPORT_BYTES: Input should be greater than or equal to 4194304"):
        load_settings(
            database_url=sqlite_url, broker_url=broker_url, webhook_secret="s" * 16, max_report_bytes=LIMIT - 1
        )
