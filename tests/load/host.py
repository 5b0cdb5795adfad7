"""A GPU host of the benchmarks: it claims a job and reports at once; and the histories that its jobs meet."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import psycopg
from redis import Redis
from servers import Servers, tasks, web
from shape import HARDWARE

from gprojci_service.access import service as access
from gprojci_service.context import Context
from gprojci_service.models import Job, Project, Worker
from gprojci_service.queue import SERVICE_QUEUE

MANIFEST = """
[backends.gproj]
entry = "gproj:attention"
[accuracy]
inputs = ["late-keybias"]
[gate]
dq_error_ceiling = 0.9
"""
PATIENCE_SECONDS = 300.0


def project() -> Project:
    """The only one; its number is 1."""
    return Project(name="o/r", clone_url="file:///r.git", default_branch="main", private=False)


def worker(name: str) -> Worker:
    """A worker that has said hello."""
    about = {"device": "cuda", "device_name": "NVIDIA H200", "boot_id": uuid.uuid4().hex, "environment": {}}
    return Worker(name=name, hardware=HARDWARE, **about)


def job(number: int) -> Job:
    """A queued job about a push."""
    sha = f"{number:040x}"
    return Job(project_id=1, kind="push", dedup_key=sha, head_sha=sha, ref="main", hardware=HARDWARE)


class Host:
    """Measures jobs of the project, one after the other, over the worker API."""

    def __init__(self, context: Context, address: str, processes: tuple[psutil.Process, ...]) -> None:
        self.processes = processes
        self._context = context
        self.sent = 0
        """Bytes of the newest report."""
        with context.database.session(writes=True) as session:
            token = access.create_token(session, "bench", "worker")[1]
            session.add_all([project(), worker("host")])
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._client = httpx.Client(base_url=f"{address}/api/v1/worker", headers=headers, timeout=PATIENCE_SECONDS)
        self._database = psycopg.connect(context.settings.database_url.replace("+psycopg", ""), autocommit=True)

    def measured(self, number: int, report: dict[str, Any]) -> tuple[float, float, float]:
        """Makes a job and reports on it; returns when the report was sent, acknowledged, and decided upon."""
        with self._context.database.session(writes=True) as session:
            made = job(number)
            session.add(made)
            session.flush()
            job_id = made.id
        body = {"worker": "host", "claim_id": uuid.uuid4().hex, "job_id": job_id}
        attempt = self._client.post("/claim", json=body).raise_for_status().json()["attempt"]
        manifests = {"head": MANIFEST, "base": None}
        terminal = {"fencing_token": attempt["fencing_token"], "status": "measured", "report": report}
        content = json.dumps(terminal | {"steps": [], "builds": [], "manifests": manifests}).encode()
        self.sent, began = len(content), time.perf_counter()
        self._client.post(f"/attempts/{attempt['id']}/report", content=content).raise_for_status()
        acknowledged = time.perf_counter()
        while self._state(job_id) != "finished":
            if time.perf_counter() - began > PATIENCE_SECONDS:
                raise TimeoutError(f"job {job_id} is {self._state(job_id)}")
            time.sleep(0.005)
        return began, acknowledged, time.perf_counter()

    def idle(self) -> None:
        """Waits until the task worker has done what the jobs gave it to do, so that its work counts as theirs."""
        broker = Redis(unix_socket_path=self._context.settings.broker_url.removeprefix("redis+socket://"))
        while broker.llen(SERVICE_QUEUE) or broker.hlen("unacked"):
            time.sleep(0.05)
        broker.close()

    def _state(self, job_id: int) -> str:
        found = self._database.execute("SELECT state FROM job WHERE id = %s", (job_id,)).fetchone()
        return str(found[0]) if found else ""

    def close(self) -> None:
        """Ends its connections."""
        self._client.close()
        self._database.close()


@contextmanager
def running(on: Servers, context: Context) -> Iterator[Host]:
    """Web and task processes on a database, and a host."""
    with web(context.settings) as (address, web_process), tasks(context.settings) as task_process:
        host = Host(context, address, (web_process, task_process))
        try:
            yield host
        finally:
            host.close()


def fill(url: str, size: int) -> None:
    """Gives each series so many samples, each of a commit, a job and a report of its own, older than what there is.

    Their numbers are negative, so that what is newest stays what was measured.
    """
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")  # the numbers are right by construction
        (have,) = connection.execute("SELECT -least(min(id), 0) FROM report").fetchone() or (0,)
        for table, columns in _FILLED.items():
            names = ", ".join(f'"{name}"' for name in columns)
            connection.execute(  # type: ignore[call-overload]
                f'INSERT INTO "{table}" ({names}) SELECT {", ".join(columns.values())} '
                f"FROM generate_series({have} + 1, {size}) AS g(n)" + (", series" if table == "sample" else "")
            )
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


_SHA, _THEN = "lpad('f' || to_hex(n), 40, '0')", "now() - n * interval '1 minute' - interval '1 day'"
_FILLED = {
    "commit": {"id": "-n", "project_id": "1", "sha": _SHA, "created_at": _THEN},
    "job": {
        **{"id": "-n", "project_id": "1", "kind": "'push'", "dedup_key": "'old' || n", "head_sha": _SHA},
        **{"ref": "'main'", "hardware": f"'{HARDWARE}'", "state": "'finished'", "created_at": _THEN},
    },
    "attempt": {
        **{"id": "-n", "job_id": "-n", "worker_id": "1", "number": "1", "claim_id": "'old' || n"},
        **{"state": "'reported'", "steps": "'[]'", "lease_expires_at": _THEN, "deadline_at": _THEN},
        **{"heartbeat_at": _THEN, "started_at": _THEN},
    },
    "report": {
        **{"id": "-n", "job_id": "-n", "attempt_id": "-n", "fencing_token": "1", "accepted": "true"},
        **{"schema_version": "1", "body": "'{}'", "received_at": _THEN},
    },
    "sample": {
        **{"series_id": "series.id", "report_id": "-n", "commit_id": "-n", "revision": "'head'"},
        **{"value": "0.002 * (1 + 0.01 * random())", "count": "1", "measured_at": _THEN},
    },
}
