"""What the service logs: a line of text or a JSON object for each record, with the job and the delivery it is about."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import trace
from pythonjsonlogger.json import JsonFormatter

from gprojci_service.settings import Settings

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(about)s"
FIELDS = ("asctime", "levelname", "name", "message", "process")
RENAMED = {"asctime": "time", "levelname": "level", "name": "logger"}
# Loggers of libraries that bring handlers of their own, or say at INFO what nobody needs.
THEIRS = ("uvicorn", "uvicorn.error", "celery", "celery.task", "celery.redirected")
QUIET = ("httpx", "alembic", "kombu")

_about: ContextVar[dict[str, object] | None] = ContextVar("gprojci_log_about", default=None)


def note(**facts: object) -> None:
    """Says what is being worked on (`job=7`, `delivery="…"`): every later record of this task or request has it, and so
    has its span where traces are collected."""
    _about.set({**(_about.get() or {}), **facts})
    trace.get_current_span().set_attributes({f"gprojci.{name}": str(value) for name, value in facts.items()})


@contextmanager
def fresh() -> Iterator[None]:
    """For threads that do one thing after the other: what is noted inside ends with it."""
    token = _about.set({})
    try:
        yield
    finally:
        _about.reset(token)


class About(logging.Filter):
    """Adds what was noted to a record: as fields of the JSON, in brackets to the text."""

    def filter(self, record: logging.LogRecord) -> bool:
        facts = _about.get() or {}
        for name, value in facts.items():
            setattr(record, name, value)
        record.about = f" [{' '.join(f'{name}={value}' for name, value in facts.items())}]" if facts else ""
        return True


def configure(settings: Settings) -> None:
    """Has all records of this process written to standard error, in the form that the settings ask for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(About())
    if settings.log_format == "json":
        handler.setFormatter(
            JsonFormatter(
                list(FIELDS),
                rename_fields=RENAMED,
                exc_info_as_array=False,
                reserved_attrs=[*logging.makeLogRecord({}).__dict__, "about"],
                timestamp=False,
            )
        )
    else:
        handler.setFormatter(logging.Formatter(TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level)
    for name in THEIRS:
        logging.getLogger(name).handlers[:], logging.getLogger(name).propagate = [], True
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
