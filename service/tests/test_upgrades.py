"""A database of every earlier release comes through with its data, and migrations hold no lock that stops a service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from fastapi.testclient import TestClient
from sqlalchemy import Engine, create_engine, event, func, inspect, select, text

from gprojci_service.app import create_app
from gprojci_service.database import alembic_config
from gprojci_service.models import Base, Commit
from gprojci_service.settings import load_settings

OLD = {path.stem: path for path in sorted((Path(__file__).parent / "old_databases").glob("*.sql"))}
NO_BROKER = "redis://127.0.0.1:9/0"
# Of what squawk knows the rules about locks that stop readers or writers while a table is rewritten or read through.
LOCK_RULES = (
    "adding-field-with-default",
    "adding-foreign-key-constraint",
    "adding-not-nullable-field",
    "adding-required-field",
    "adding-serial-primary-key-field",
    "changing-column-type",
    "constraint-missing-not-valid",
    "disallowed-unique-constraint",
    "require-concurrent-index-creation",
    "require-concurrent-index-deletion",
    "require-lock-timeout",
)
UNCHECKED = "0009"
"""The last revision that was made before its locks were looked at."""


def migrate(engine: Engine, revision: str) -> None:
    config = alembic_config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of either kind without any table."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'old.sqlite'}"
    url: str = request.getfixturevalue("_new_postgres_database")("template1")
    return url


def load(engine: Engine, rows: str) -> dict[str, int]:
    """Fills the tables; returns how many rows each has."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL TIME ZONE 'UTC'"))
        for line in rows.splitlines():
            connection.exec_driver_sql(line)
        names = [name for name in inspect(connection).get_table_names() if name != "alembic_version"]
        if engine.dialect.name == "postgresql":  # as pg_dump does
            for name in names:
                connection.execute(
                    text(f"SELECT setval(pg_get_serial_sequence('\"{name}\"', 'id'), max(id)) FROM \"{name}\"")
                )
        counted = {name: connection.execute(text(f'SELECT count(*) FROM "{name}"')).scalar_one() for name in names}
    return counted


@pytest.mark.parametrize("revision", OLD)
def test_a_database_of_an_earlier_release_is_brought_here_with_its_data(revision: str, empty_url: str) -> None:
    old = create_engine(empty_url)
    migrate(old, revision)
    before = load(old, OLD[revision].read_text())
    assert sum(before.values()) >= 17
    old.dispose()

    settings = load_settings(database_url=empty_url, broker_url=NO_BROKER, webhook_secret="x" * 16)
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=False) as session:
        for table in before.keys() & Base.metadata.tables.keys():
            kept = session.scalar(select(func.count()).select_from(Base.metadata.tables[table]))
            assert kept == before[table], table
        assert session.get_one(Commit, 1).message == "It's a \\ change"
        for mapper in Base.registry.mappers:
            for row in session.scalars(select(mapper.class_)):
                assert row.id
    client = TestClient(app)
    job = client.get("/api/v1/jobs/1").json()
    assert (job["state"], job["verdict"]["verdict"]) == ("finished", "pass")
    assert [attempt["state"] for attempt in job["attempts"]] == ["lost", "reported"]
    assert client.get("/api/v1/jobs/1/report").json()["accuracy"]["summary"][0]["median"] == 0.002
    for page in ("/", "/jobs/1", "/jobs/2", "/workers", "/regressions"):
        assert client.get(page).status_code == 200, page
    assert client.get("/api/v1/jobs/2").json()["state"] == "awaiting_approval"
    app.state.database.close()


@pytest.mark.parametrize("empty_url", ["postgresql"], indirect=True)
def test_where_several_migrate_at_once_one_does_it(empty_url: str) -> None:
    """As web and tasks do where each begins with it."""
    settings = {"DATABASE_URL": empty_url, "BROKER_URL": NO_BROKER, "WEBHOOK_SECRET": "x" * 16}
    environment = {**os.environ, **{f"GPROJCI_{name}": value for name, value in settings.items()}}
    command_line = [sys.executable, "-m", "gprojci_service", "migrate"]
    started = [subprocess.Popen(command_line, env=environment, stderr=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate(timeout=100)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    engine = create_engine(empty_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()


def test_there_is_a_database_of_each_release() -> None:
    assert {"0001", "0004", "0009"} <= OLD.keys()


@pytest.fixture(scope="module")
def statements(
    _new_postgres_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Path]]:
    """A file of what each later revision executes on PostgreSQL, as the server got it."""
    engine = create_engine(_new_postgres_database("template1"))
    executed: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: executed.append(statement))
    directory = tmp_path_factory.mktemp("statements")
    migrate(engine, UNCHECKED)
    found = {}
    for script in reversed(list(ScriptDirectory.from_config(alembic_config()).walk_revisions(UNCHECKED, "head"))):
        if script.revision == UNCHECKED:
            continue
        executed.clear()
        migrate(engine, script.revision)
        made = list(executed)
        if "autocommit_block" in Path(script.path).read_text():  # it may be interrupted half way, and is then run again
            with engine.begin() as connection:
                connection.execute(text("UPDATE alembic_version SET version_num = :old"), {"old": script.down_revision})
            migrate(engine, script.revision)
        found[script.revision] = directory / f"{script.revision}.sql"
        found[script.revision].write_text("".join(f"{statement.strip()};\n" for statement in changes(made)))
    yield found
    engine.dispose()


def changes(executed: list[str]) -> list[str]:
    """Of the statements those for squawk: no bookkeeping of Alembic, no questions, no indexes of new tables."""
    new = {line.split()[2] for line in executed if line.lstrip().startswith("CREATE TABLE")}
    kept = [line for line in executed if "alembic_version" not in line and not line.lstrip().startswith("SELECT")]
    return [line for line in kept if not (line.startswith("CREATE INDEX") and line.split()[4] in new)]


def squawk(*files: Path) -> str:
    """What squawk finds in files by our rules; empty where nothing is wrong."""
    command_line = [Path(sys.executable).parent / "squawk", "--pg-version", "17", "--reporter", "Gcc", *files]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=60)
    return "".join(line + "\n" for line in done.stdout.splitlines() if any(rule in line for rule in LOCK_RULES))


def test_migrations_hold_no_lock_that_stops_a_service(statements: dict[str, Path]) -> None:
    assert squawk(*statements.values()) == "", "migrations/README.md says how to write it"


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("CREATE INDEX ix ON sample (value);", "require-concurrent-index-creation"),
        ("ALTER TABLE job ALTER COLUMN effort TYPE bigint;", "changing-column-type"),
        ("ALTER TABLE job ADD COLUMN x integer NOT NULL;", "adding-required-field"),
        ("ALTER TABLE job ADD CONSTRAINT ck_x CHECK (id > 0);", "constraint-missing-not-valid"),
        ("ALTER TABLE job ADD COLUMN x integer;", "require-lock-timeout"),
    ],
)
def test_a_lock_that_would_stop_a_service_is_found(statement: str, rule: str, tmp_path: Path) -> None:
    (tmp_path / "bad.sql").write_text(statement + "\n")
    assert rule in squawk(tmp_path / "bad.sql")
