"""Engine, sessions and transactions: one transaction per request or task, messages only after its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from alembic import command
from alembic.config import Config
from fastapi import Request
from sqlalchemy import Connection, create_engine, event, make_url
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from gprojci_service.errors import ConfigurationError
from gprojci_service.queue import Message, Queue
from gprojci_service.settings import migrations_directory

_WRITES = "gprojci_writes"
_MESSAGES = "gprojci_messages"
_BEFORE_COMMIT = "gprojci_before_commit"


class Database:
    """The database behind a URL; SQLite and PostgreSQL run the same code and the same migrations."""

    def __init__(self, url: str, queue: Queue) -> None:
        self.url = url
        self.queue = queue
        self.engine = _engine(url)

    @contextmanager
    def session(self, *, writes: bool) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back on any error; its messages are sent after the commit.

        SQLite takes its write lock at the beginning where `writes`, so that no transaction fails half way for it.
        """
        with Session(self.engine, expire_on_commit=False) as session:
            session.connection(execution_options={_WRITES: writes})
            yield session
            for act in session.info.pop(_BEFORE_COMMIT, []):
                act()
            session.commit()
            messages: list[Message] = session.info.pop(_MESSAGES, [])
        for message in messages:
            self.queue.send(message)

    def migrate(self) -> None:
        """Brings the schema to the newest revision; does nothing where it is there already."""
        config = Config()
        config.set_main_option("script_location", str(migrations_directory()))
        with self.engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()

    def close(self) -> None:
        """Gives all connections back."""
        self.engine.dispose()


def send_after_commit(session: Session, task: str, *args: Any, queue: str = "service") -> None:
    """Sends a Celery message once the session's transaction is committed, and never if it is not."""
    session.info.setdefault(_MESSAGES, []).append(Message(task, list(args), queue))


def before_commit(session: Session, act: Callable[[], None]) -> None:
    """Has something done as the last of the session's transaction, and not done if that fails before."""
    session.info.setdefault(_BEFORE_COMMIT, []).append(act)


def get_session(request: Request) -> Iterator[Session]:
    """FastAPI dependency (`scope="function"`: the commit comes before the answer): the request's transaction."""
    database: Database = request.app.state.database
    with database.session(writes=request.method not in ("GET", "HEAD")) as session:
        yield session


def _engine(url: str) -> Engine:
    backend = make_url(url).get_backend_name()
    if backend == "postgresql":
        return create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=20)
    if backend != "sqlite":
        raise ConfigurationError(f"GPROJCI_DATABASE_URL: {backend!r} is not supported; use PostgreSQL or SQLite")
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 30})

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=30000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
