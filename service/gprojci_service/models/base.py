"""What every table shares: naming of constraints, UTC times, JSON columns and the integer key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, MetaData
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

# SQLite only autoincrements a column spelled INTEGER; PostgreSQL gets a 64-bit key.
BigKey = BigInteger().with_variant(Integer, "sqlite")
JsonColumn = JSON().with_variant(JSONB(), "postgresql")


class UtcDateTime(TypeDecorator[datetime]):
    """A time zone aware moment, stored in UTC; SQLite, which drops the zone, gets it back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError(f"a naive time was to be stored: {value!r}; give it a time zone")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)


class Base(DeclarativeBase):
    """Declarative base of all tables."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: UtcDateTime, dict[str, Any]: JsonColumn, list[Any]: JsonColumn}


class Keyed:
    """The integer primary key."""

    id: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)


class Retried(Keyed):
    """What is tried until it is done: pending, with the moment before which nobody tries it again."""

    state: Mapped[str] = mapped_column(default="pending", index=True)
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime | None]
    """Not to be tried before; None is at once. While it is being tried: when whoever does is given up for lost."""
    created_at: Mapped[datetime] = mapped_column(default=now)

    def waits(self, moment: datetime) -> bool:
        """Whether its time has not come yet."""
        return self.next_attempt_at is not None and self.next_attempt_at > moment
