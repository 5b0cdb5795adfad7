"""Engine, sessions and transactions: one transaction per request or task, messages only after its commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from alembic import command
from alembic.config import Config
from fastapi import Request
from fastapi.concurrency import contextmanager_in_threadpool
from sqlalchemy import ARRAY, BigInteger, ColumnElement, Connection, any_, cast, create_engine, event, make_url
from sqlalchemy.engine import Engine
from sqlalchemy.orm import InstrumentedAttribute, Session

from gprojci_service.errors import ConfigurationError
from gprojci_service.queue import Message, Queue
from gprojci_service.settings import migrations_directory

_WRITES = "gprojci_writes"
_MESSAGES = "gprojci_messages"
_BEFORE_COMMIT = "gprojci_before_commit"
_CONNECTIONS = 20
"""Of a process, at most; they stay, for one that is opened anew for a request costs more than most requests."""
_REQUESTS = 8
"""Requests of a process that hold a connection at the same time; the others are for transactions that begin and end in
one thread. More of them only wait for each other in the interpreter."""

# Without these a request or task waits for hours on a connection whose other end is gone: the reaper among them.
_NETWORK: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_ABANDONED_SECONDS = 30
"""How long PostgreSQL keeps the locks of a transaction whose client says nothing; ours never wait for anybody else."""


class Database:
    """The database behind a URL; SQLite and PostgreSQL run the same code and the same migrations."""

    def __init__(self, url: str, queue: Queue) -> None:
        self.url = url
        self.queue = queue
        self.engine = _engine(url)
        self.requests = asyncio.Semaphore(_REQUESTS)

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
        config = alembic_config()
        with self.engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()

    def close(self) -> None:
        """Gives all connections back."""
        self.engine.dispose()


def alembic_config() -> Config:
    """Alembic's configuration for our migrations; its commands take the connection from `attributes["connection"]`."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    return config


def is_postgresql(session: Session) -> bool:
    """Whether the session is PostgreSQL's, for statements that SQLite has not."""
    return session.get_bind().dialect.name == "postgresql"


def among(session: Session, of: ColumnElement[int] | InstrumentedAttribute[int], numbers: Iterable[int]) -> Any:
    """Whether a column is one of many numbers. On PostgreSQL they are one parameter: hundreds of single ones take
    longer to write than their rows to find."""
    if is_postgresql(session):
        return of == any_(cast(list(numbers), ARRAY(BigInteger)))
    return of.in_(list(numbers))


def send_after_commit(session: Session, task: str, *args: Any, queue: str = "service") -> None:
    """Sends a Celery message once the session's transaction is committed, and never if it is not."""
    session.info.setdefault(_MESSAGES, []).append(Message(task, list(args), queue))


def before_commit(session: Session, act: Callable[[], None]) -> None:
    """Has something done as the last of the session's transaction, and not done if that fails before."""
    session.info.setdefault(_BEFORE_COMMIT, []).append(act)


async def get_session(request: Request) -> AsyncIterator[Session]:
    """FastAPI dependency (`scope="function"`: the commit comes before the answer): the request's transaction.

    A request needs a thread several times while it holds its connection. So whoever has no connection yet waits
    without holding a thread, or all threads wait for connections whose requests wait for threads.
    """
    database: Database = request.app.state.database
    transaction = database.session(writes=request.method not in ("GET", "HEAD"))
    async with database.requests, contextmanager_in_threadpool(transaction) as session:
        yield session


def _engine(url: str) -> Engine:
    backend = make_url(url).get_backend_name()
    if backend == "postgresql":
        return _postgresql(url)
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


def _postgresql(url: str) -> Engine:
    given = make_url(url).query
    network = {name: value for name, value in _NETWORK.items() if name not in given}
    engine = create_engine(url, pool_pre_ping=True, pool_size=_CONNECTIONS, max_overflow=0, connect_args=network)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_ABANDONED_SECONDS}s'")
        connection.commit()

    return engine
