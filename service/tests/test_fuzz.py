"""Webhooks and reports that are almost right: each is taken or refused with a reason, and nothing fails on it."""

from __future__ import annotations

import contextlib
import json

import pytest
from fuzzing import bounded, mutated
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from gprojci_service.errors import PayloadInvalid
from gprojci_service.models import WebhookDelivery
from gprojci_service.webhooks import service as webhooks
from gprojci_service.webhooks.events import HANDLERS
from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.report import Report


@pytest.fixture
def database_url(postgres_url):
    return postgres_url


def test_webhooks(service, push_payload, pull_request_payload):
    """Signed, so they are stored; the task that reads them must end with all of them, and say what was wrong."""
    comment = {
        "id": 1,
        "body": "/gprojci run",
        "user": {"login": "a", "type": "User"},
        "created_at": "2026-01-02T03:04:05Z",
    }
    issue = {"number": 7, "pull_request": {"url": "x"}}
    repository = push_payload()["repository"]
    payloads = {
        "push": push_payload(),
        "pull_request": pull_request_payload(),
        "issue_comment": {"action": "created", "comment": comment, "issue": issue, "repository": repository},
        "merge_group": {
            "action": "checks_requested",
            "merge_group": {
                "head_sha": "a" * 40,
                "base_sha": "b" * 40,
                "head_ref": "refs/heads/q",
                "base_ref": "refs/heads/main",
            },
            "repository": repository,
        },
        "repository": {"action": "renamed", "repository": repository},
        "installation": {
            "action": "created",
            "installation": {"id": 3},
            "repositories": [{"id": 42, "full_name": "o/r"}],
        },
        "check_run": {
            "action": "rerequested",
            "check_run": {"external_id": "1", "head_sha": "a" * 40},
            "repository": repository,
        },
    }
    assert payloads.keys() <= HANDLERS.keys()

    @bounded(80)
    @given(st.sampled_from(sorted(payloads)).flatmap(lambda event: st.tuples(st.just(event), mutated(payloads[event]))))
    def deliver(what):
        event, payload = what
        answer = service.deliver(event, json.dumps(payload).encode())
        assert answer.status_code in (202, 400), answer.text
        service.work_off()

    deliver()
    with service.context.database.session(writes=False) as session:
        states = set(session.scalars(select(WebhookDelivery.state)))
    assert "failed" in states
    assert "received" not in states  # each was read to its end


@bounded(150)
@given(st.binary(max_size=60) | st.sampled_from([b"[" * 5000, b'{"a":' * 5000, b"\xff\xfe", b"NaN", b'{"a":1e999}']))
def test_bodies_that_are_no_webhooks(body):
    with contextlib.suppress(PayloadInvalid):
        assert webhooks.read("push", "x", body).payload == json.loads(body)


def test_reports(make_report):
    report = make_report()

    @bounded(100)
    @given(mutated(report))
    def read(changed):
        with contextlib.suppress(ContractError):
            Report.from_json(json.loads(json.dumps(changed)))

    read()


def test_reports_of_workers(service, push_payload, make_report):
    """A hostile worker, or what a kernel made of the file: the service refuses it or takes it, and decides."""
    report = {
        "fencing_token": 1,
        "status": "measured",
        "report": make_report(),
        "manifests": {"head": "[gate", "base": None},
    }
    service.deliver("push", push_payload())
    service.work_off()
    service.hello()
    attempt = service.claim().json()["attempt"]["id"]

    @bounded(40)
    @given(mutated(report))
    def send(changed):
        answer = service.client.post(
            f"/api/v1/worker/attempts/{attempt}/report",
            content=json.dumps(changed),
            headers={**service.worker_headers, "Content-Type": "application/json"},
        )
        assert answer.status_code < 500, answer.text
        service.work_off()

    send()
