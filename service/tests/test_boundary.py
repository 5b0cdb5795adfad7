"""What holds for every request: bodies have an end, browsers are told what an answer may do, guessing has a limit."""

from __future__ import annotations

import logging

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from gprojci_service.access import rate_limits, sessions
from gprojci_service.access.rate_limits import RateLimits
from gprojci_service.app import create_app
from gprojci_service.boundary import BODY_BYTES
from gprojci_service.errors import TooManyRequests
from gprojci_service.models import Token
from gprojci_service.settings import load_settings


@pytest.fixture
def database_url(sqlite_url):
    return sqlite_url


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/api/v1/tokens", "/api/v1/worker/hello", "/sign-in", "/nowhere"])
def test_a_body_without_end_is_not_read(service, path, chunked):
    """Also where nobody is known yet: a body is parsed before the token is looked at."""

    def body():
        for _ in range(100):
            yield b" " * (BODY_BYTES // 10)

    content = body() if chunked else b" " * (BODY_BYTES + 1)
    answer = service.client.post(path, content=content, headers={"Content-Type": "application/json"})
    if path == "/nowhere" and chunked:
        assert answer.status_code == 404  # it reads no body at all
        return
    if path == "/sign-in" and chunked:
        assert answer.status_code == 422  # it takes forms alone
        return
    assert (answer.status_code, answer.json()["error"]) == (413, "PayloadTooLarge")


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/1", "/healthz", "/nowhere", "/static/site.css", "/"])
def test_every_answer_says_what_a_browser_may_do_with_it(service, path):
    headers = service.client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert "strict-transport-security" not in headers


def test_behind_https_browsers_stay_there(settings):
    https = load_settings(**{**settings.model_dump(), "public_url": "https://ci.example.com"})
    headers = TestClient(create_app(https)).get("/healthz").headers
    assert headers["strict-transport-security"] == "max-age=31536000"


def test_no_answer_lets_another_site_read_it(service):
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for answer in (service.client.get("/api/v1/jobs", headers=headers), service.client.options("/api/v1/jobs")):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_webhooks_with_wrong_signatures_are_counted_and_right_ones_are_not(service, push_payload):
    answers = {service.deliver("push", push_payload(), signature="sha256=no").status_code for _ in range(61)}
    assert answers == {401, 429}
    assert service.deliver("push", push_payload()).status_code == 202


def test_uploads_are_counted_by_token(service, monkeypatch):
    monkeypatch.setitem(rate_limits.LIMITS, "upload", rate_limits.RateLimitItemPerHour(1))
    ask = {"content": b"{}", "headers": service.write_headers}
    assert service.client.post("/api/v1/reports?title=t", **ask).status_code == 422
    refused = service.client.post("/api/v1/reports?title=t", **ask)
    assert (refused.status_code, refused.json()["error"]) == (429, "TooManyRequests")
    assert int(refused.headers["retry-after"]) > 60


def test_tokens_are_not_made_without_end(service, monkeypatch):
    monkeypatch.setitem(rate_limits.LIMITS, "new token", rate_limits.RateLimitItemPerHour(1))
    answers = [
        service.client.post("/api/v1/tokens", json={"name": "n", "scope": "read"}, headers=service.write_headers)
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 429]
    with service.context.database.session(writes=False) as session:
        cookie, visitor = sessions.start(service.settings, session.get_one(Token, 2))
    page = TestClient(service.app, cookies={sessions.COOKIE: cookie})
    assert page.post("/tokens", data={"csrf": visitor.csrf, "name": "n", "scope": "read"}).status_code == 429


def test_of_ipv6_a_customers_whole_network_is_one_client():
    def client(host):
        return rate_limits.client_of(Request({"type": "http", "client": (host, 1)}))

    assert client("2001:db8:1:2::5") == client("2001:db8:1:2:ffff::7") != client("2001:db8:1:3::5")
    assert client("192.0.2.1") != client("192.0.2.2")


def test_limits_are_those_of_all_processes_together(broker_url):
    first, second = RateLimits(broker_url), RateLimits(broker_url)
    for _ in range(20):
        first.count("sign-in", "a")
    with pytest.raises(TooManyRequests):
        second.count("sign-in", "a")
    second.count("sign-in", "b")


def test_without_redis_nobody_is_locked_out(caplog):
    limits = RateLimits("redis://127.0.0.1:1/0")
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            limits.count("sign-in", "a")
    assert "is not counted" in caplog.text
