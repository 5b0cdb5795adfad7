"""A full disk, of a measuring host and under SQLite; the schema changes while workers work."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from alembic import command
from deployment import BIN, PASSED_ON, SECRET, free_port

from gprojci_service.access import service as access
from gprojci_service.context import Context
from gprojci_service.database import alembic_config
from gprojci_service.models import Attempt, Job, LogChunk, Project, Worker, now
from gprojci_service.settings import load_settings


def test_a_build_without_disk_says_nothing_of_the_commit(service: Any, namespaces: None) -> None:
    """pip ends with "No space left on device"; once there is some, another try does."""
    began, usual = time.monotonic(), service.commands["worker"]
    service.kill("worker")
    cache = Path(service.environment["GPROJCI_CACHE_DIR"])
    cache.mkdir(parents=True, exist_ok=True)  # the worker may have been killed before it made its own
    small = f'mount -t tmpfs -o size=12m none "{cache}" && exec {BIN / "gprojci-worker"}'
    service.commands["worker"] = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", small]
    try:
        service.start("worker")
        (service.holds / "full").touch()
        sha = service.push()
        query = "SELECT a.detail FROM attempt a JOIN job ON job.id = job_id WHERE head_sha = %s AND a.failure_kind = "
        query += "'lost_worker'"
        service.wait("an attempt meets the full disk", lambda: service.rows(query, sha))
        (service.holds / "full").unlink()
        assert "bytes left" in service.rows(query, sha)[0][0]
        *failed, last = service.ends_well(sha, began)
        assert last == ("reported", None)
        assert set(failed) == {("failed", "lost_worker")}
    finally:
        (service.holds / "full").unlink(missing_ok=True)
        service.commands["worker"] = usual
        service.kill("worker")
        service.start("worker")


@pytest.fixture
def on_sqlite(sqlite_url: str) -> Iterator[tuple[httpx.Client, psutil.Process, Context]]:
    """The web process on SQLite, with a running attempt: number 1, fencing token 1."""
    broker = "redis://127.0.0.1:1/0"
    context = Context.open(load_settings(database_url=sqlite_url, broker_url=broker, webhook_secret=SECRET))
    with context.database.session(writes=True) as session:
        token = access.create_token(session, "host", "worker")[1]
        about = {"hardware": "cpu", "device": "cpu", "device_name": "x", "boot_id": "x" * 8, "environment": {}}
        session.add_all(
            [Project(name="o/r", clone_url="x", default_branch="main", private=False), Worker(name="w", **about)]
        )
        session.flush()
        session.add(Job(project_id=1, kind="push", dedup_key="x", head_sha="f" * 40, hardware="cpu", state="running"))
        session.flush()
        times = {"lease_expires_at": now(), "deadline_at": now()}
        session.add(Attempt(job_id=1, worker_id=1, number=1, claim_id="x", steps=[], **times))
    port = free_port()
    environment = {"GPROJCI_DATABASE_URL": sqlite_url, "GPROJCI_BROKER_URL": broker}
    uvicorn = [sys.executable, "-m", "uvicorn", "--factory", "gprojci_service.app:create_from_environment"]
    process = subprocess.Popen(
        [*uvicorn, "--port", str(port), "--log-level", "critical"],
        env={**PASSED_ON, **environment, "GPROJCI_WEBHOOK_SECRET": SECRET},
        stderr=subprocess.DEVNULL,
    )
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            try:
                client.get("/healthz").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield client, psutil.Process(process.pid), context
    process.terminate()
    process.wait(timeout=30)
    context.database.close()


def test_a_log_line_that_found_the_disk_full_is_stored_once_there_is_space(on_sqlite: Any) -> None:
    client, process, context = on_sqlite
    line = {"fencing_token": 1, "sequence": 0, "text": "x" * 200_000}
    usual = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (8192, usual[1]))
    refused = client.post("/api/v1/worker/attempts/1/log", json=line)
    assert refused.status_code == 503, "what was not stored is acknowledged"
    assert refused.json()["error"] == "DatabaseUnavailable"
    assert client.get("/healthz").status_code == 200, "what only reads goes on"
    process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, usual[1]))
    for _ in range(2):
        assert client.post("/api/v1/worker/attempts/1/log", json=line).status_code == 204
    with context.database.session(writes=False) as session:
        assert [chunk.text for chunk in session.query(LogChunk)] == ["x" * 200_000]


def test_the_schema_changes_while_workers_work(service: Any) -> None:
    began = time.monotonic()
    with service.held("run"):
        sha = service.push()
        service.reached(sha, "run")
        url = service.context.settings.database_url
        with psycopg.connect(url.replace("+psycopg", "")) as connection:  # as a migration that locks for long
            connection.execute("ALTER TABLE attempt ADD COLUMN fault text")
            connection.execute("ALTER TABLE job ADD COLUMN fault text DEFAULT 'x'")
            time.sleep(1.5)
        config = alembic_config()
        with service.context.database.engine.connect() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "-1")
            connection.commit()
        service.context.database.migrate()
    *lost, last = service.ends_well(sha, began)
    assert last == ("reported", None)
    assert set(lost) <= {("lost", "lost_worker")}
    assert service.ends_well(service.push(), began) == [("reported", None)], "statements prepared before still fit"
