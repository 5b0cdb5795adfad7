"""Alembic's environment: migrates the connection that the service hands over, or GPROJCI_DATABASE_URL."""

from __future__ import annotations

import os

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
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get("connection")
if connection is not None:
    _run(connection)
else:
    engine = create_engine(os.environ["GPROJCI_DATABASE_URL"])
    with engine.connect() as connection:
        _run(connection)
        connection.commit()
