"""Logs: each record says which job and delivery it is about, as JSON on one line or as text."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from gprojci_service import logs


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    quiet = {name: logging.getLogger(name).level for name in logs.QUIET}
    with logs.fresh():  # earlier tests of this process have worked on something
        yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    for name, level in quiet.items():
        logging.getLogger(name).setLevel(level)


def configured(service, form: str) -> None:
    logs.configure(service.settings.model_copy(update={"log_format": form}))


def test_a_push_is_followed_through_delivery_job_and_attempt(service, push_payload, make_report, capsys):
    configured(service, "json")
    service.deliver("push", push_payload(), delivery="d-1")
    with logs.fresh():
        service.work_off()
    service.hello()
    attempt = service.claim().json()["attempt"]
    body = {"fencing_token": 1, "status": "measured", "report": make_report()}
    service.worker(f"/attempts/{attempt['id']}/report", body)
    with logs.fresh():
        service.work_off()
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all({"time", "level", "logger", "message", "process"} <= record.keys() for record in records)
    of_delivery = [record["message"] for record in records if record.get("delivery") == "d-1"]
    assert of_delivery[0] == "push taken"
    assert of_delivery[-1].startswith("push processed")
    of_job = [record["message"] for record in records if record.get("job") == 1]
    assert of_job[:2] == ["claimed by host-1", "report stored"]
    assert [record["attempt"] for record in records if record["message"] == "report stored"] == [1]
    assert "job" in records[-1], "the verdict"


def test_a_traceback_stays_on_the_line_of_its_record(service, capsys):
    configured(service, "json")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: two\nlines" in json.loads(line)["exc_info"]


def test_text_has_it_in_brackets_and_nothing_stays_behind(service, capsys):
    configured(service, "text")
    with logs.fresh():
        logs.note(job=7)
        logging.getLogger("x").warning("inside")
    logging.getLogger("x").warning("outside")
    inside, outside = capsys.readouterr().err.splitlines()
    assert inside.endswith("WARNING x: inside [job=7]")
    assert outside.endswith("WARNING x: outside")


def test_every_task_begins_afresh(service, capsys, monkeypatch):
    for name, value in (("DATABASE_URL", service.settings.database_url), ("BROKER_URL", service.settings.broker_url)):
        monkeypatch.setenv(f"GPROJCI_{name}", value)
    monkeypatch.setenv("GPROJCI_WEBHOOK_SECRET", "x" * 16)
    from gprojci_service import task_worker

    configured(service, "text")
    monkeypatch.setattr(task_worker, "context", lambda: None)

    def task(_context: None, number: int) -> None:
        logs.note(job=number)

    task_worker._bound(task)(7)
    logging.getLogger("x").warning("after")
    assert capsys.readouterr().err.endswith("x: after\n")
