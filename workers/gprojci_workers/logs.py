"""What the worker logs: a line of text or a JSON object for each record, with the job and attempt it is about."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s%(about)s"
FIELDS = ("asctime", "levelname", "name", "message", "process")
RENAMED = {"asctime": "time", "levelname": "level", "name": "logger"}

_about: dict[str, object] = {}
"""Of the one attempt that a process does at a time, whichever of its threads says something."""


def note(**facts: object) -> None:
    """Says what is being worked on (`job=7`), in place of what was; without facts: nothing is."""
    _about.clear()
    _about.update(facts)


class About(logging.Filter):
    """Adds what was noted to a record: as fields of the JSON, in brackets to the text."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in _about.items():
            setattr(record, name, value)
        record.about = f" [{' '.join(f'{name}={value}' for name, value in _about.items())}]" if _about else ""
        return True


def configure(form: str, level: str) -> None:
    """Has all records of this process written to standard error, as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(About())
    reserved = [*logging.makeLogRecord({}).__dict__, "about"]
    handler.setFormatter(
        JsonFormatter(list(FIELDS), rename_fields=RENAMED, reserved_attrs=reserved)
        if form == "json"
        else logging.Formatter(TEXT)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("httpx").setLevel(logging.WARNING)
