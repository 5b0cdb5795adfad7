"""What every request and task needs: settings, database, queue, GitHub."""

from __future__ import annotations

from dataclasses import dataclass

from gprojci_service.database import Database
from gprojci_service.github.client import GitHub, connect
from gprojci_service.queue import Queue
from gprojci_service.settings import Settings


@dataclass(frozen=True)
class Context:
    """One program's connections."""

    settings: Settings
    queue: Queue
    database: Database
    github: GitHub

    @classmethod
    def open(cls, settings: Settings) -> Context:
        """Connects lazily: nothing is contacted before it is used."""
        queue = Queue(settings.broker_url)
        return cls(settings, queue, Database(settings.database_url, queue), connect(settings))
