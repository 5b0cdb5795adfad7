"""The audit log: every change that somebody asks for is in it, with who and what, and without secrets."""

from __future__ import annotations

import html
import logging
import re

import pytest
import training_example as example
from fastapi.testclient import TestClient
from page_reading import turned
from sqlalchemy import select

from gprojci_service.access import service as access
from gprojci_service.models import AuditEvent
from gprojci_service.pages import audit
from gprojci_suite.contract import bundled

HEAD = "a" * 40


@pytest.fixture
def database_url(sqlite_url):
    return sqlite_url


@pytest.fixture
def rows(service):
    """What the log holds, oldest first."""

    def read():
        with service.context.database.session(writes=False) as session:
            return list(session.scalars(select(AuditEvent).order_by(AuditEvent.id)))

    return read


@pytest.fixture
def ask(service):
    """A request with the admin's token, which must succeed."""

    def request(method, path, **kwargs):
        answer = service.client.request(method, f"/api/v1{path}", headers=service.write_headers, **kwargs)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    return request


def test_changes_are_written_down_with_their_transaction(service, ask, rows):
    ask("POST", "/projects", json={"name": "o/r", "clone_url": "https://github.com/o/r.git"})
    (job,) = ask("POST", "/jobs", json={"project": "o/r", "head_sha": HEAD})
    ask("POST", f"/jobs/{job['id']}/cancel", json={"reason": "x" * 500})
    address = "https://hooks.slack.com/services/T/B/SECRET"
    channel = ask("POST", "/channels", json={"project": "o/r", "name": "n", "kind": "slack", "url": address})
    ask("DELETE", f"/channels/{channel['id']}")
    assert [(row.action, row.project, row.actor, row.actor_kind) for row in rows()] == [
        (action, project, "u", "token")
        for action, project in (
            ("create_project", None),
            ("create_job", "o/r"),
            ("cancel_job", "o/r"),
            ("create_channel", "o/r"),
            ("remove_channel", "o/r"),
        )
    ]
    detail = rows()[2].detail
    assert (detail["job_id"], len(detail["reason"])) == (str(job["id"]), 200)
    assert "SECRET" not in str([row.detail for row in rows()])


def test_what_fails_or_only_reads_leaves_no_row(service, ask, rows):
    ask("GET", "/tokens")
    for path, body in (("/projects", {"name": "bad"}), ("/jobs", {"project": "no/one", "head_sha": HEAD})):
        assert service.client.post(f"/api/v1{path}", json=body, headers=service.write_headers).is_client_error
    assert rows() == []


def test_a_token_is_made_and_revoked_in_sight(service, ask, rows, caplog):
    caplog.set_level(logging.DEBUG)
    made = ask("POST", "/tokens", json={"name": "n", "scope": "read", "expires_in_days": 3})
    ask("POST", f"/tokens/{made['id']}/revoke")
    assert [(row.action, row.detail) for row in rows()] == [
        ("create_token", {"name": "n", "scope": "read", "expires_in_days": "3"}),
        ("revoke_token", {"token_id": str(made["id"])}),
    ]
    assert made["secret"] not in str([vars(row) for row in rows()])
    used = service.write_headers["Authorization"].removeprefix("Bearer ")
    assert caplog.text, "something is logged"
    assert not [secret for secret in (made["secret"], used) if secret in caplog.text]


def test_every_operation_that_changes_something_is_audited(service):
    """By the document: whatever is neither read nor a worker's or GitHub's depends on what notes it."""
    noted = {access.require_write, access.require_admin, access.authorize_upload}
    document = service.client.get("/api/v1/openapi.json").json()
    changing = {
        (path, method)
        for path, methods in document["paths"].items()
        for method in methods
        if method != "get" and not path.startswith(("/api/v1/worker/", "/webhooks/"))
    }
    found = set()
    for included in service.app.routes:
        router = getattr(included, "original_router", None)
        for route in router.routes if router else ():
            if calls(route.dependant) & noted:
                found |= {(f"/api/v1{route.path}", method.lower()) for method in route.methods}
    assert changing - found == set()
    assert len(changing) > 20


def test_what_is_uploaded_is_written_down(service, rows, make_report, tmp_path):
    """Uploads take long, so they have no transaction that the check of the token could note them in."""
    service.app.state.settings = service.settings.model_copy(update={"upload_dir": tmp_path})
    sent = [
        service.client.post(
            "/api/v1/inputs?name=mine", content=bundled.read("early-rope"), headers=service.write_headers
        ),
        service.client.post("/api/v1/reports?title=peers", json=make_report(), headers=service.write_headers),
        service.client.put("/api/v1/training/keybias", content=example.report().dumps(), headers=service.write_headers),
    ]
    assert [answer.status_code for answer in sent] == [201] * 3
    assert [(row.action, row.actor, row.actor_kind, row.detail) for row in rows()] == [
        ("upload_input", "u", "token", {"name": "mine"}),
        ("import_report", "u", "token", {"title": "peers"}),
        ("put_training", "u", "token", {"name": "keybias"}),
    ]


def calls(dependant):
    """What an endpoint depends on, directly and through others."""
    found = {dependant.call}
    for inner in dependant.dependencies:
        found |= calls(inner)
    return found


def test_the_api_filters(service, ask):
    for scope in ("read", "write"):
        ask("POST", "/tokens", json={"name": scope, "scope": scope})
    ask("POST", "/projects", json={"name": "o/r", "clone_url": "https://github.com/o/r.git"})
    assert [row["action"] for row in ask("GET", "/audit?limit=2")] == ["create_project", "create_token"]
    assert len(ask("GET", "/audit?action=create_token&actor=u")) == 2
    assert ask("GET", "/audit?actor=nobody") == []
    assert ask("GET", "/audit?until=2020-01-01T00:00:00Z") == []
    newest = ask("GET", "/audit?limit=1")[0]["id"]
    assert len(ask("GET", f"/audit?before={newest}&since=2020-01-01T00:00:00Z")) == 2


def test_the_page_filters_and_is_for_admins(service, ask):
    ask("POST", "/tokens", json={"name": "<script>alert(1)</script>\x1b[31m", "scope": "read"})
    browser = TestClient(service.app)
    assert browser.get("/audit").status_code == 401
    with service.context.database.session(writes=True) as session:
        writer = access.create_token(session, "w", "write")[1]
    for secret, status in ((writer, 403), (service.write_headers["Authorization"].removeprefix("Bearer "), 200)):
        mark = re.search(r'name="csrf" value="([^"]+)"', browser.get("/sign-in").text)
        browser.post("/sign-in", data={"token": secret, "next": "/", "csrf": html.unescape(mark[1])})
        assert browser.get("/audit").status_code == status
    page = browser.get("/audit?action=create_token").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    assert "create_token" in page
    assert "Nothing was changed" in browser.get("/audit?actor=nobody&since=2026-01-01&until=2026-01-02").text
    assert browser.get("/audit?since=yesterday").status_code == 422
    assert browser.get("/audit?until=9999-12-31").status_code == 422


@pytest.mark.parametrize(("sort", "onward"), [("newest", "Older"), ("oldest", "Later")])
def test_a_long_log_is_paged_in_both_orders(service, ask, rows, monkeypatch, sort, onward):
    monkeypatch.setattr(audit, "PAGE", 2)
    names = [f"reader-{number}" for number in range(5)]
    for name in names:
        ask("POST", "/tokens", json={"name": name, "scope": "read"})
    browser = TestClient(service.app)
    mark = re.search(r'name="csrf" value="([^"]+)"', browser.get("/sign-in").text)
    secret = service.write_headers["Authorization"].removeprefix("Bearer ")
    browser.post("/sign-in", data={"token": secret, "next": "/", "csrf": html.unescape(mark[1])})
    first = f"/audit?action=create_token&sort={sort}"
    pages = turned(browser, first, f"{onward} changes", keeps="action=create_token")
    seen = [name for page in pages for name in re.findall(r"<strong>name</strong> (reader-\d)", page)]
    assert seen == (names if sort == "oldest" else names[::-1])
    assert len(pages) == 3


def test_signing_in_is_written_down(service, rows):
    browser = TestClient(service.app, follow_redirects=False)
    mark = re.search(r'name="csrf" value="([^"]+)"', browser.get("/sign-in").text)
    secret = service.write_headers["Authorization"].removeprefix("Bearer ")
    browser.post("/sign-in", data={"token": secret, "next": "/", "csrf": html.unescape(mark[1])})
    (row,) = rows()
    assert (row.action, row.actor, row.actor_kind, row.detail) == ("sign_in", "u", "session", {})
