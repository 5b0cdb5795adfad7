"""`gprojci serve`: the whole service from one command, every part a real process under one supervisor.

A private Redis, the web server, the task worker with the reaper's timetable, and a measuring worker. A part that
ends is started again. If the supervisor itself is killed its parts die with it, and the next start finds and repeats
what was under way.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import click
import httpx

from gprojci_service import redis_server
from gprojci_service.access import service as access
from gprojci_service.context import Context
from gprojci_service.errors import ConfigurationError
from gprojci_service.settings import load_settings

START_SECONDS = 60.0
STOP_SECONDS = 5.0
# What code under test on this machine must not see of the data directory.
PRIVATE = ("token", "webhook-secret", "gprojci.sqlite", "gprojci.sqlite-wal", "gprojci.sqlite-shm", "logs", "uploads")


@dataclass
class Part:
    """One process of the service."""

    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0


class Embedded:
    """The service in a data directory of its own."""

    def __init__(self, data_dir: Path, host: str, port: int, *, with_worker: bool) -> None:
        self.data_dir = data_dir.resolve()
        self.host, self.port = host, port
        self.with_worker = with_worker
        self.parts: list[Part] = []
        self.lock: IO[str] | None = None
        self.stopping = False

    @property
    def url(self) -> str:
        """Address of the pages."""
        return f"http://{self.host}:{self.port}"

    def run(self, when_ready: Callable[[], None] | None = None) -> None:
        """Starts everything and keeps it running until SIGINT or SIGTERM.

        Raises:
            ConfigurationError: the directory is in use, the port is taken, or a part cannot start.
        """
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self._stop)
        self._take_directory()
        runtime = self._runtime_directory()
        try:
            self._start(runtime)
            click.echo(f"GProj CI is at {self.url}  (data in {self.data_dir}, logs in {self.data_dir / 'logs'})")
            if when_ready:
                when_ready()
            while not self.stopping:
                self._supervise()
                time.sleep(0.3)
        finally:
            self._end_all()
            shutil.rmtree(runtime, ignore_errors=True)

    def _start(self, runtime: Path) -> None:
        environment = self._environment(runtime)
        os.environ.update(environment)
        settings = load_settings()
        context = Context.open(settings)
        context.database.migrate()
        with context.database.session(writes=True) as session:
            os.environ["GPROJCI_WORKER_TOKEN"] = access.replace_token(session, "embedded", "worker")
            write_token = self.data_dir / "token"
            if not write_token.exists():
                _write_secret(write_token, access.create_token(session, "embedded", "admin")[1])
        context.database.close()
        python = sys.executable
        celery = [
            python,
            "-P",
            "-m",
            "celery",
            "-A",
            "gprojci_service.task_worker",
            "worker",
            "-Q",
            "service",
            "--concurrency",
            "1",
        ]
        beat = ["--beat", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
        uvicorn = [python, "-P", "-m", "uvicorn", "--factory", "gprojci_service.app:create_from_environment"]
        self._launch("redis", redis_server.command(redis_server.find_server(), runtime / "redis.sock"))
        _wait_until("Redis", (runtime / "redis.sock").exists, self._log_of("redis"))
        self._launch("web", [*uvicorn, "--host", self.host, "--port", str(self.port), "--no-access-log"])
        self._launch("tasks", [*celery, *beat])
        with httpx.Client(timeout=2) as client:
            _wait_until("the web server", lambda: self._healthy(client), self._log_of("web"))
        if self.with_worker:
            self._launch("worker", [_worker_command()])

    def _environment(self, runtime: Path) -> dict[str, str]:
        secret = self.data_dir / "webhook-secret"
        if not secret.exists():
            _write_secret(secret, secrets.token_hex(32))
        given = os.environ
        key_file = [
            str(Path(path).resolve()) for path in [given.get("GPROJCI_GITHUB_APP_KEY_FILE", "").strip()] if path
        ]
        environment = {
            "GPROJCI_DATABASE_URL": f"sqlite:///{self.data_dir / 'gprojci.sqlite'}",
            "GPROJCI_BROKER_URL": f"redis+socket://{runtime / 'redis.sock'}",
            "GPROJCI_WEBHOOK_SECRET": given.get("GPROJCI_WEBHOOK_SECRET", secret.read_text().strip()),
            "GPROJCI_PUBLIC_URL": given.get("GPROJCI_PUBLIC_URL", self.url),
            "GPROJCI_SERVICE_URL": self.url,
            "GPROJCI_UPLOAD_DIR": given.get("GPROJCI_UPLOAD_DIR", str(self.data_dir / "uploads")),
            "GPROJCI_CACHE_DIR": given.get("GPROJCI_CACHE_DIR", str(self.data_dir / "cache")),
            "GPROJCI_HIDDEN_PATHS": json.dumps([str(self.data_dir / name) for name in PRIVATE] + key_file),
            "GPROJCI_LEASE_SECONDS": given.get("GPROJCI_LEASE_SECONDS", "30"),
            "GPROJCI_HEARTBEAT_SECONDS": given.get("GPROJCI_HEARTBEAT_SECONDS", "3"),
            "GPROJCI_REAPER_SECONDS": given.get("GPROJCI_REAPER_SECONDS", "5"),
        }
        if self.with_worker and "GPROJCI_DEFAULT_HARDWARE" not in given:
            environment["GPROJCI_DEFAULT_HARDWARE"] = json.dumps([_describe_worker(environment)["hardware"]])
        return environment

    def _take_directory(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "logs").mkdir(exist_ok=True)
        self.lock = (self.data_dir / "lock").open("a+")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(
                f"{self.data_dir} is in use by another `gprojci serve`; stop that or choose another --data-dir"
            ) from error
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise ConfigurationError(
                    f"port {self.port} of {self.host} is taken ({error.strerror}); choose another --port"
                ) from error
            self.port = probe.getsockname()[1]

    def _runtime_directory(self) -> Path:
        """A short-lived directory for the socket, whose path must be short; one left by a killed start is removed."""
        note = self.data_dir / "runtime"
        if note.exists():
            shutil.rmtree(note.read_text().strip(), ignore_errors=True)
        runtime = Path(tempfile.mkdtemp(prefix="gprojci-"))
        note.write_text(str(runtime))
        return runtime

    def _launch(self, name: str, command: list[str]) -> None:
        part = Part(name, command)
        self.parts.append(part)
        self._spawn(part)

    def _spawn(self, part: Part) -> None:
        dies_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with self._log_of(part.name).open("ab") as log:
            part.process = subprocess.Popen(
                [*dies_with_us, *part.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        part.started_at = time.monotonic()

    def _supervise(self) -> None:
        for part in self.parts:
            if part.process is None:
                if time.monotonic() - part.started_at >= min(2.0**part.failures, 30.0):
                    self._spawn(part)
            elif part.process.poll() is not None:
                _kill_group(part.process)
                part.failures = part.failures + 1 if time.monotonic() - part.started_at < 60 else 0
                click.echo(f"{part.name} ended with code {part.process.returncode}; it is started again", err=True)
                part.process, part.started_at = None, time.monotonic()

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _end_all(self) -> None:
        """Ends the parts in reverse order; a measurement that is under way is cut short and repeated later."""
        for part in reversed(self.parts):
            if part.process is None:
                continue
            part.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it is killed below
                part.process.wait(timeout=STOP_SECONDS)
            _kill_group(part.process)

    def _healthy(self, client: httpx.Client) -> bool:
        if self.stopping:
            raise ConfigurationError("stopped while starting")
        try:
            return client.get(self.url + "/readyz").is_success
        except httpx.HTTPError:
            return False

    def _log_of(self, name: str) -> Path:
        return self.data_dir / "logs" / f"{name}.log"


def _worker_command() -> str:
    """The measuring worker's command, from the environment this service runs in."""
    beside = Path(sys.executable).parent / "gprojci-worker"
    found = str(beside) if beside.exists() else shutil.which("gprojci-worker")
    if not found:
        raise ConfigurationError("gprojci-worker is not installed; install gprojci-workers, or use --no-worker")
    return found


def _describe_worker(environment: dict[str, str]) -> dict[str, str]:
    done = subprocess.run(
        [_worker_command(), "--describe"],
        env={**os.environ, **environment, "GPROJCI_WORKER_TOKEN": "none"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise ConfigurationError(f"gprojci-worker cannot start: {done.stderr.strip()}")
    described: dict[str, str] = json.loads(done.stdout)
    return described


def _write_secret(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")


def _wait_until(what: str, ready: Callable[[], bool], log: Path) -> None:
    give_up = time.monotonic() + START_SECONDS
    while not ready():
        if time.monotonic() > give_up:
            tail = log.read_text(errors="replace")[-1500:] if log.exists() else ""
            raise ConfigurationError(
                f"{what} did not start within {START_SECONDS:g} s; its log {log} ends with:\n{tail}"
            )
        time.sleep(0.1)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
