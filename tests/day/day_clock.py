"""Time that a test moves: nobody sleeps through a night.

The service reads the real clock and keeps moments in its database. So time passes by making all of those older, the
stand-in's too; what is compared with the present then is as it would be later.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import Interval, literal, update

from gprojci_service.context import Context
from gprojci_service.models.base import Base, UtcDateTime


class Clock:
    """Moments of the day, and what they are on the real clock once time has passed."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def now(self) -> datetime:
        """The moment of the day, in whole seconds as GitHub has them; keep it, and show it with `real`."""
        return datetime.now(UTC).replace(microsecond=0) + self.passed

    def real(self, moment: datetime) -> str:
        """A moment of the day on the real clock, as GitHub writes times."""
        return (moment - self.passed).strftime("%Y-%m-%dT%H:%M:%SZ")

    def advance(self, context: Context, by: timedelta) -> None:
        """Lets time pass, in whole seconds so that times that GitHub and the service have both stay the same."""
        by = timedelta(seconds=round(by.total_seconds()))
        with context.database.session(writes=True) as session:
            for table in Base.metadata.sorted_tables:
                moments = {
                    column: column - literal(by, Interval)
                    for column in table.columns
                    if isinstance(column.type, UtcDateTime)
                }
                if moments:
                    session.execute(update(table).values(moments))
        self.passed += by
