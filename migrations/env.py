"""Alembic's environment: migrates the connection that the service hands over, or GPROJCI_DATABASE_URL."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from alembic import context
from sqlalchemy import Connection, create_engine, text

from gprojci_service.models import Base

_MIGRATING = 7_306_088_401
"""Number of an advisory lock: nobody else's."""


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        transaction_per_migration=True,
    )
    with _alone(connection), _without_foreign_keys(connection), context.begin_transaction():
        context.run_migrations()


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """On PostgreSQL, waits until nobody else migrates this database; who comes second then finds nothing to do.

    It asks again and again, for an index that is made concurrently waits for whoever waits in the database.
    """
    if connection.dialect.name != "postgresql":
        yield
        return
    while not connection.scalar(text(f"SELECT pg_try_advisory_lock({_MIGRATING})")):
        connection.rollback()
        time.sleep(0.2)
    connection.commit()  # the lock is the connection's, not the transaction's
    try:
        yield
    finally:
        connection.rollback()
        connection.execute(text(f"SELECT pg_advisory_unlock({_MIGRATING})"))
        connection.commit()


@contextmanager
def _without_foreign_keys(connection: Connection) -> Iterator[None]:
    """Lets SQLite make a table anew although rows of others point into it, and checks afterwards that they still do.

    Source: SQLite's documentation, "Making Other Kinds Of Table Schema Changes"; it must be outside of a transaction.
    """
    driver = connection.connection.driver_connection
    if connection.dialect.name != "sqlite" or driver is None:
        yield
        return
    (before,) = driver.execute("PRAGMA foreign_keys").fetchone()
    driver.execute("PRAGMA foreign_keys=OFF")
    yield
    if connection.in_transaction():
        connection.commit()
    broken = driver.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise RuntimeError(f"the migration left rows that point nowhere: {broken[:5]}")
    driver.execute(f"PRAGMA foreign_keys={before}")


connection = context.config.attributes.get("connection")
if connection is not None:
    _run(connection)
else:
    engine = create_engine(os.environ["GPROJCI_DATABASE_URL"])
    with engine.connect() as connection:
        _run(connection)
        connection.commit()
