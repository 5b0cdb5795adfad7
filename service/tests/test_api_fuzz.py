"""The whole API under generated requests, as its OpenAPI document describes them and otherwise: no answer is a 5xx.

FUZZ_EXAMPLES=200 in the environment searches longer.
"""

from __future__ import annotations

import pytest
import schemathesis
from fuzzing import bounded
from hypothesis import given
from schemathesis import GenerationMode


@pytest.fixture
def database_url(postgres_url):
    """What it refuses, SQLite often takes: NUL, lone surrogates, numbers without bounds."""
    return postgres_url


def test_no_request_makes_the_service_fail(service, push_payload, monkeypatch):
    service.deliver("push", push_payload())
    service.work_off()
    service.hello()
    service.claim()
    service.app.state.rate_limits.count = lambda *_: None
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", service.app)
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    tried, failed = 0, {}
    for result in schema.get_all_operations():
        operation = result.ok()
        headers = service.worker_headers if "/worker/" in operation.path else service.write_headers
        _ask(operation, headers, failed)
        tried += 1
    assert failed == {}
    assert tried > 50


@pytest.mark.parametrize("name", ["\\u0000", "\\ud800"])
def test_what_cannot_be_stored_is_the_requests_fault(service, name):
    body = f'{{"name": "a{name}", "scope": "read"}}'
    headers = {**service.write_headers, "Content-Type": "application/json"}
    answer = service.client.post("/api/v1/tokens", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (422, "InvalidRequest")


def _ask(operation, headers, failed):
    """Asks one operation many things; notes the first that it fails on."""

    @bounded(6)
    @given(case=operation.as_strategy())
    def ask(case):
        if "/tokens/" in case.path and str(case.path_parameters.get("token_id")) in ("1", "2"):
            return  # those that this test asks with
        answer = case.call(headers=headers)
        if answer.status_code >= 500:
            failed.setdefault(operation.label, f"{case.as_curl_command()} → {answer.status_code} {answer.text[:300]}")

    ask()
