"""Webhooks that arrive together: stored together, answered each for itself."""

from __future__ import annotations

import json
import uuid

import pytest

from gprojci_service.errors import PayloadInvalid
from gprojci_service.models import WebhookDelivery
from gprojci_service.queue import SERVICE_QUEUE
from gprojci_service.webhooks import service as webhooks
from gprojci_service.webhooks.intake import Intake
from gprojci_service.webhooks.tasks import process_delivery


def body(**payload):
    return json.dumps(payload).encode()


@pytest.fixture
def together(service):
    """Takes deliveries while the database is busy with another one, so that they are stored in one transaction."""

    def take(*deliveries):
        intake, first = Intake(service.context.database), str(uuid.uuid4())
        with service.context.database.session(writes=True) as session:
            webhooks.receive(session, [webhooks.read("ping", first, body(zen="first"))])
            waits = intake.take("ping", first, body(zen="first"))
            while intake._waiting:
                pass
            answers = [intake.take(*delivery) for delivery in deliveries]
            session.info.clear()
        assert waits.result(30).status == "accepted"  # it came again before it was processed
        return answers

    return take


def stored(service):
    with service.context.database.session(writes=False) as session:
        return {row.delivery_id: row for row in session.query(WebhookDelivery)}


def test_they_are_one_transaction_and_one_message(service, together):
    ids = [f"delivery-{number}" for number in (3, 1, 2)]
    answers = together(*(("ping", one, body(zen=one, action="told")) for one in ids))
    assert [(answer.result(30).status, answer.result().delivery) for answer in answers] == [
        ("accepted", one) for one in ids
    ]
    rows = stored(service)
    assert [(rows[one].payload["zen"], rows[one].action, rows[one].event) for one in ids] == [
        (one, "told", "ping") for one in ids
    ]
    queue = service.context.queue
    assert queue.length(SERVICE_QUEUE) == 2, "one of the first, one of the three"
    service.work_off()
    assert {row.state for row in stored(service).values()} == {"processed"}
    processed = sorted(stored(service).values(), key=lambda row: row.processed_at)
    assert [row.delivery_id for row in processed][1:] == ids, "in the order in which they came"


def test_what_cannot_be_read_or_stored_keeps_none_of_the_others(service, together):
    good, no_json, endless, no_event = together(
        ("ping", "good", body(zen="good")),
        ("ping", "no-json", b"{"),
        ("ping", "endless", b'{"a": 1e999}' if "postgresql" in service.settings.database_url else b'{"a": NaN}'),
        (None, "no-event", b"{}"),
    )
    assert good.result(30).status == "accepted"
    for refused in (no_json, no_event):
        with pytest.raises(PayloadInvalid):
            refused.result(30)
    with pytest.raises(Exception, match=r"Infinity|NaN"):
        endless.result(30)
    assert "good" in stored(service)
    assert not {"no-json", "endless", "no-event"} & set(stored(service))


def test_one_that_comes_twice_is_stored_once(service, together):
    answers = together(("ping", "twice", body(zen="a")), ("ping", "twice", body(zen="a")))
    assert [answer.result(30).status for answer in answers] == ["accepted", "accepted"]
    service.work_off()
    (answer,) = together(("ping", "twice", body(zen="a")))
    assert answer.result(30).status == "duplicate"
    assert len(stored(service)) == 3  # with the first of each


def test_a_database_that_fails_is_told_to_each(service, together, monkeypatch):
    def fails(*_):
        raise ConnectionError("gone")

    intake = Intake(service.context.database)
    monkeypatch.setattr("gprojci_service.webhooks.service.receive", fails)
    with pytest.raises(ConnectionError, match="gone"):
        intake.take("ping", "lost", body(zen="a")).result(30)
    monkeypatch.undo()
    assert intake.take("ping", "lost", body(zen="a")).result(30).status == "accepted", "the thread goes on"


def test_a_delivery_whose_processing_fails_keeps_none_of_the_others(service, monkeypatch):
    for one in ("first", "second"):
        service.deliver("ping", {"zen": one}, delivery=one)
    rows = stored(service)
    process = webhooks.process

    def fails_at_first(session, settings, number):
        if number == rows["first"].id:
            raise ConnectionError("gone")
        process(session, settings, number)

    monkeypatch.setattr(webhooks, "process", fails_at_first)
    with pytest.raises(ConnectionError):
        process_delivery(service.context, rows["first"].id, rows["second"].id)
    assert {name: row.state for name, row in stored(service).items()} == {"first": "received", "second": "processed"}
