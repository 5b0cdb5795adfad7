"""Fixtures of the faults: a PostgreSQL of their own, and the service around it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts neither there
sys.path.insert(0, str(Path(__file__).parents[2] / "service" / "tests"))

from fault_clock import Clock
from fault_service import FaultyService, Postgres

from gprojci_service.context import Context
from gprojci_service.settings import load_settings

NO_COMPILER = "there is no C compiler (cc), which makes the clock that these tests set"


@pytest.fixture(scope="session")
def killable_postgres() -> Iterator[Postgres]:
    """Killed by tests, hence not the one that others share."""
    directory = Path(tempfile.mkdtemp(prefix="gprojci-faults-postgres-"))
    server = Postgres(directory)
    yield server
    server.close()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    """The wall clock of the service's processes, which a test sets."""
    if shutil.which("cc") is None:
        pytest.fail(NO_COMPILER) if os.environ.get("CI") else pytest.skip(NO_COMPILER)
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="session")
def service(
    killable_postgres: Postgres, clock: Clock, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyService]:
    """One running service for all of these tests: each leaves it as it found it, which the next would notice."""
    with psycopg.connect(killable_postgres.uri, autocommit=True) as connection:
        connection.execute("CREATE DATABASE faults")
    url = killable_postgres.uri.replace("postgresql://", "postgresql+psycopg://").replace("/postgres?", "/faults?")
    context = Context.open(
        load_settings(database_url=url, broker_url="redis://127.0.0.1:1/0", webhook_secret="a secret of the tests")
    )
    context.database.migrate()
    context.database.close()
    directory = tmp_path_factory.mktemp("faults") / "service"
    with FaultyService(directory, killable_postgres, "faults", clock.environment) as running:
        yield running
