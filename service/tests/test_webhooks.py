"""Webhooks: authentic ones are stored once and make their jobs, others leave no row."""

from __future__ import annotations

import json

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, func, select, text

from gprojci_service.database import before_commit, send_after_commit
from gprojci_service.errors import ConfigurationError
from gprojci_service.github.signature import is_valid, sign
from gprojci_service.models import Job, WebhookDelivery
from gprojci_service.queue import PROCESS_DELIVERY, celery_app
from gprojci_service.settings import load_settings
from gprojci_service.webhooks.tasks import process_delivery

HEAD, OTHER = "a" * 40, "c" * 40


def count(service, table) -> int:
    with service.context.database.session(writes=False) as session:
        return session.scalar(select(func.count()).select_from(table))


def test_signature_of_githubs_documentation():
    """The example values of GitHub's "Validating webhook deliveries"."""
    expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert sign(b"Hello, World!", "It's a Secret to Everybody") == expected
    assert is_valid(b"Hello, World!", "It's a Secret to Everybody", expected)


@pytest.mark.parametrize("header", [None, "", "sha256=", "sha1=abc", "sha256=" + "0" * 64, "sha256=ü"])
def test_other_signatures_are_invalid(header):
    assert not is_valid(b"Hello, World!", "It's a Secret to Everybody", header)


def test_push_makes_one_job(service, push_payload):
    answer = service.deliver("push", push_payload())
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    service.work_off()
    (job,) = service.jobs()
    assert (job["kind"], job["state"], job["head_sha"], job["base_sha"]) == ("push", "queued", HEAD, None)
    assert service.context.queue.length("measure.cpu") == 1


def test_a_message_follows_its_commit_and_never_goes_without(service, push_payload, monkeypatch):
    """Sent before, a worker would look for a row that is not there yet, or never will be."""
    seen = []
    queue = service.context.queue
    monkeypatch.setattr(queue, "send", lambda message: seen.append((message.task, count(service, WebhookDelivery))))
    assert service.deliver("push", push_payload()).status_code == 202
    assert seen == [(PROCESS_DELIVERY, 1)]

    def roll_back():
        with service.context.database.session(writes=True) as session:
            send_after_commit(session, PROCESS_DELIVERY, 1)
            before_commit(session, lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        roll_back()
    assert len(seen) == 1


def test_while_redis_is_away_webhooks_are_taken_all_the_same(service, push_payload):
    service.context.queue.celery = celery_app("redis://127.0.0.1:1/0")
    assert service.deliver("push", push_payload()).status_code == 202
    assert count(service, WebhookDelivery) == 1


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_the_first_webhook_after_a_restart_of_the_database_is_taken(service, push_payload):
    """GitHub sends none again by itself, and the connections that were kept are gone."""
    assert service.jobs() == []
    with create_engine(service.settings.database_url).connect() as another:
        others = "pid <> pg_backend_pid() AND datname = current_database() AND backend_type = 'client backend'"
        ended = another.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
        assert len(ended.all()) >= 1
    assert service.deliver("push", push_payload()).status_code == 202
    service.work_off()
    assert len(service.jobs()) == 1


def test_redelivery_makes_no_second_job(service, push_payload):
    service.deliver("push", push_payload(), delivery="d-1")
    service.work_off()
    answer = service.deliver("push", push_payload(), delivery="d-1")
    assert (answer.status_code, answer.json()["status"]) == (202, "duplicate")
    service.work_off()
    service.deliver("push", push_payload(), delivery="d-2")  # the same push under another delivery id
    service.work_off()
    assert (count(service, Job), count(service, WebhookDelivery)) == (1, 2)


def test_a_message_that_comes_twice_does_nothing_the_second_time(service, pull_request_payload):
    """Celery delivers at least once, and then it may be late."""
    for action, state in (("opened", "open"), ("closed", "closed")):
        service.deliver("pull_request", pull_request_payload(action, state=state))
        service.work_off()
    process_delivery(service.context, 1)
    assert [job["state"] for job in service.jobs()] == ["cancelled"]


def test_redelivery_of_an_unprocessed_one_runs_it(service, push_payload):
    service.deliver("push", push_payload(), delivery="d-1")
    with service.context.queue.celery.connection_for_write() as connection:
        connection.default_channel.client.flushall()  # Redis lost the message
    assert service.deliver("push", push_payload(), delivery="d-1").json()["status"] == "accepted"
    service.work_off()
    assert count(service, Job) == 1


def test_while_the_secret_is_changed_both_are_valid_and_then_one(service, push_payload):
    old, new = service.settings.webhook_secret, SecretStr("the new secret of the tests")
    body = json.dumps(push_payload()).encode()
    for present, previous, expected in ((old, None, [202, 401]), (new, old, [202, 202]), (new, None, [401, 202])):
        service.settings.webhook_secret, service.settings.webhook_secret_previous = present, previous
        signatures = [sign(body, secret.get_secret_value()) for secret in (old, new)]
        answers = [service.deliver("push", body, signature=signature) for signature in signatures]
        assert [answer.status_code for answer in answers] == expected


def test_an_empty_previous_secret_is_none(settings):
    assert load_settings(**{**settings.model_dump(), "webhook_secret_previous": " "}).webhook_secret_previous is None


@pytest.mark.parametrize("name", ["webhook_secret", "webhook_secret_previous"])
def test_a_short_secret_is_refused_at_the_start(settings, name):
    with pytest.raises(ConfigurationError, match=rf"^GPROJCI_{name.upper()}: .*at least 16 characters"):
        load_settings(**{**settings.model_dump(), name: "short"})


def test_forged_signature_leaves_no_row(service, push_payload):
    answer = service.deliver("push", push_payload(), signature="sha256=" + "0" * 64)
    assert (answer.status_code, answer.json()["error"]) == (401, "SignatureInvalid")
    assert count(service, WebhookDelivery) == 0
    assert service.context.queue.length("service") == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe"])
def test_a_body_that_is_no_json_object_is_refused(service, body):
    answer = service.deliver("push", body)
    assert (answer.status_code, answer.json()["error"]) == (400, "PayloadInvalid")
    assert count(service, WebhookDelivery) == 0


def test_a_body_over_the_limit_is_refused(service):
    service.app.state.settings.max_webhook_bytes = 100
    answer = service.deliver("push", {"text": "x" * 200})
    assert (answer.status_code, answer.json()["error"]) == (413, "PayloadTooLarge")


def test_a_payload_without_what_is_needed_is_kept_as_failed(service, push_payload):
    payload = push_payload()
    del payload["after"]
    assert service.deliver("push", payload).status_code == 202
    service.work_off()
    with service.context.database.session(writes=False) as session:
        delivery = session.scalar(select(WebhookDelivery))
    assert (delivery.state, delivery.detail) == ("failed", "payload: after: Field required")
    assert count(service, Job) == 0


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        ("star", {}),
        ("push", {"ref": "refs/tags/v1"}),
        ("push", {"ref": "refs/heads/topic"}),
        ("push", {"deleted": True}),
    ],
)
def test_what_asks_for_nothing_is_acknowledged(service, push_payload, event, changes):
    assert service.deliver(event, push_payload(**changes)).status_code == 202
    service.work_off()
    with service.context.database.session(writes=False) as session:
        assert session.scalar(select(WebhookDelivery.state)) == "ignored"
    assert count(service, Job) == 0


def test_ping(service):
    assert service.deliver("ping", {"zen": "Keep it logically awesome.", "hook_id": 1}).status_code == 202
    service.work_off()
    with service.context.database.session(writes=False) as session:
        assert session.scalar(select(WebhookDelivery.detail)) == "pong"


def test_a_nul_character_in_a_message_is_no_obstacle(service, push_payload):
    payload = push_payload()
    payload["head_commit"]["message"] = "bad \x00 byte"
    assert service.deliver("push", payload).status_code == 202
    service.work_off()
    assert count(service, Job) == 1


def test_synchronize_supersedes_and_closed_cancels(service, pull_request_payload):
    service.deliver("pull_request", pull_request_payload("opened"))
    service.work_off()
    service.deliver("pull_request", pull_request_payload("synchronize", OTHER))
    service.work_off()
    newer, older = service.jobs()
    assert (older["state"], older["superseded_by_id"], newer["state"]) == ("cancelled", newer["id"], "queued")
    service.deliver("pull_request", pull_request_payload("closed", OTHER, state="closed"))
    service.work_off()
    assert service.job(newer["id"])["state"] == "cancelled"
    assert "closed" in service.job(newer["id"])["detail"]


def test_a_fork_waits_for_the_approval_of_that_commit(service, pull_request_payload):
    service.deliver("pull_request", pull_request_payload(fork=True))
    service.work_off()
    (job,) = service.jobs()
    assert job["state"] == "awaiting_approval"
    service.hello()
    assert service.claim(job_id=job["id"]).status_code == 204
    path = f"/api/v1/jobs/{job['id']}/approve"
    wrong = service.client.post(path, json={"head_sha": OTHER}, headers=service.write_headers)
    assert (wrong.status_code, wrong.json()["error"]) == (409, "JobNotWaiting")
    assert service.client.post(path, json={"head_sha": HEAD}, headers=service.worker_headers).status_code == 403
    assert service.client.post(path, json={"head_sha": HEAD}, headers=service.write_headers).json()["state"] == "queued"
    assert service.claim(job_id=job["id"]).status_code == 200


def test_a_rerun_is_no_way_around_the_approval(service, pull_request_payload):
    service.deliver("pull_request", pull_request_payload(fork=True))
    service.work_off()
    (job,) = service.jobs()
    path = f"/api/v1/jobs/{job['id']}"
    service.client.post(f"{path}/cancel", json={}, headers=service.write_headers)
    again = service.client.post(f"{path}/rerun", headers=service.write_headers).json()
    assert again["state"] == "awaiting_approval"
    path = f"/api/v1/jobs/{again['id']}"
    service.client.post(f"{path}/approve", json={"head_sha": HEAD}, headers=service.write_headers)
    service.client.post(f"{path}/cancel", json={}, headers=service.write_headers)
    assert service.client.post(f"{path}/rerun", headers=service.write_headers).json()["state"] == "queued"


def test_a_renamed_repository_stays_the_same_project(service, push_payload):
    service.deliver("push", push_payload())
    renamed = push_payload(OTHER)
    renamed["repository"]["full_name"] = "o/renamed"
    service.deliver("push", renamed)
    service.work_off()
    assert [project["name"] for project in service.client.get("/api/v1/projects").json()] == ["o/renamed"]


def test_a_pull_request_is_shown_with_its_present_head(service, pull_request_payload):
    """A rerun of an earlier commit does not stand for the pull request."""
    service.deliver("pull_request", pull_request_payload("opened"))
    service.work_off()
    service.deliver("pull_request", pull_request_payload("synchronize", OTHER))
    service.work_off()
    newer, older = service.jobs()
    again = service.client.post(f"/api/v1/jobs/{older['id']}/rerun", headers=service.write_headers).json()
    page = service.client.get("/").text
    card = page[page.index("o/r") : page.index("Recent jobs")]
    assert (OTHER[:8] in card, HEAD[:8] in card) == (True, False)
    assert service.job(again["id"])["state"] == service.job(newer["id"])["state"] == "queued"
