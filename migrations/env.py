"""Alembic's environment: migrates the connection that the service hands over, or GPROJCI_DATABASE_URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from alembic import context
from sqlalchemy import Connection, create_engine

from gprojci_service.models import Base


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        transaction_per_migration=True,
    )
    with _without_foreign_keys(connection), context.begin_transaction():
        context.run_migrations()


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
