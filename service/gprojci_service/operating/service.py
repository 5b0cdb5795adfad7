"""Decides whether the service can do its work: the database answers and has the schema that this version needs."""

from __future__ import annotations

from functools import cache

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from gprojci_service.context import Context
from gprojci_service.database import alembic_config
from gprojci_service.operating.schemas import Ready
from gprojci_service.queue import SERVICE_QUEUE


def ready(context: Context) -> Ready:
    """Looks at database, schema and broker. Without the broker work is delayed and none is lost, so it is only told."""
    try:
        present = schema_revision(context)
    except SQLAlchemyError as error:
        return Ready(ready=False, database=f"does not answer: {str(error).splitlines()[0]}", schema_="", broker="")
    wanted = newest_revision()
    schema = "ok" if present == wanted else f"is at {present or 'nothing'}, not {wanted}: run `gprojci migrate`"
    try:
        context.queue.length(SERVICE_QUEUE)
        broker = "ok"
    except (OperationalError, RedisError, OSError) as error:
        broker = f"does not answer: {error}"
    # A newer schema is one that this version can still work with: migrations only add.
    return Ready(ready=_at_least(present, wanted), database="ok", schema_=schema, broker=broker)


def schema_revision(context: Context) -> str | None:
    """The revision that the database is at; None without any table.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    with context.database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


@cache
def newest_revision() -> str:
    """The revision that this version was made for; every migration is imported to find it."""
    newest = ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert newest is not None
    return newest


def _at_least(present: str | None, wanted: str) -> bool:
    return present is not None and present >= wanted
