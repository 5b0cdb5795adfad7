"""Tokens: every endpoint that changes something needs the right one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from gprojci_service.access import service as access
from gprojci_service.models import Token, now

OPEN = {"/webhooks/github", "/healthz", "/readyz"}


def test_every_endpoint_asks_for_its_token(service):
    """Walks the OpenAPI document: without a token, with a wrong one, and with one of the other scope."""
    document = service.client.get("/api/v1/openapi.json").json()
    tried = 0
    for path, methods in document["paths"].items():
        for method in methods:
            if path in OPEN or (method == "get" and not path.startswith(("/api/v1/tokens", "/api/v1/worker/"))):
                continue
            url = path.replace("{", "").replace("}", "").replace("job_id", "1").replace("attempt_id", "1")
            url = url.replace("token_id", "1").replace("regression_id", "1")
            other = service.write_headers if path.startswith("/api/v1/worker/") else service.worker_headers
            for headers, status in (({}, 401), ({"Authorization": "Bearer nonsense"}, 401), (other, 403)):
                answer = service.client.request(method, url, headers=headers, json={})
                assert answer.status_code == status, (method, path, answer.text)
            tried += 1
    assert tried >= 14


def test_expired_and_revoked_tokens_are_refused(service):
    with service.context.database.session(writes=True) as session:
        expired = access.create_token(session, "expired", "write", expires_in=timedelta(seconds=-1))[1]
        token, revoked = access.create_token(session, "revoked", "write")
        token.revoked_at = now()
    for secret in (expired, revoked):
        answer = service.client.get("/api/v1/tokens", headers={"Authorization": f"Bearer {secret}"})
        assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")


def test_a_token_is_shown_once_and_stored_hashed(service):
    made = service.client.post(
        "/api/v1/tokens", json={"name": "n", "scope": "write"}, headers=service.write_headers
    ).json()
    listed = service.client.get("/api/v1/tokens", headers=service.write_headers).text
    assert made["secret"] not in listed
    with service.context.database.session(writes=False) as session:
        stored = session.scalar(select(Token).where(Token.id == made["id"]))
    assert made["secret"] not in str(vars(stored))
    headers = {"Authorization": f"Bearer {made['secret']}"}
    assert service.client.post(f"/api/v1/tokens/{made['id']}/revoke", headers=headers).status_code == 200
    assert service.client.get("/api/v1/tokens", headers=headers).status_code == 401


def test_reading_may_be_closed(service):
    assert service.client.get("/api/v1/jobs").status_code == 200
    service.app.state.settings.public_read = False
    assert service.client.get("/api/v1/jobs").status_code == 401
    assert service.client.get("/api/v1/jobs", headers=service.write_headers).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/api/v1/jobs/999", 404, "JobNotFound"),
        ("GET", "/api/v1/jobs/x", 422, "InvalidRequest"),
        ("GET", "/api/v1/nothing", 404, "NotFound"),
        ("DELETE", "/api/v1/jobs", 405, "MethodNotAllowed"),
        ("GET", "/api/v1/projects/no/one", 404, "ProjectNotFound"),
        ("GET", "/api/v1/jobs?limit=0", 422, "InvalidRequest"),
        ("GET", "/api/v1/series/1/samples", 404, "SeriesNotFound"),
        ("GET", "/api/v1/jobs/99999999999999999999", 422, "InvalidRequest"),
    ],
)
def test_errors_have_one_shape(service, method, path, status, error):
    answer = service.client.request(method, path)
    assert (answer.status_code, set(answer.json()), answer.json()["error"]) == (status, {"error", "detail"}, error)


def test_projects_and_jobs_by_hand(service):
    body = {"name": "o/r", "clone_url": "https://github.com/o/r.git"}
    assert service.client.post("/api/v1/projects", json=body, headers=service.write_headers).status_code == 201
    again = service.client.post("/api/v1/projects", json=body, headers=service.write_headers)
    assert (again.status_code, again.json()["error"]) == (409, "ProjectExists")
    wrong = service.client.post(
        "/api/v1/projects", json={**body, "clone_url": "ext::sh -c id"}, headers=service.write_headers
    )
    assert wrong.status_code == 422
    (job,) = service.client.post(
        "/api/v1/jobs", json={"project": "o/r", "head_sha": "a" * 40}, headers=service.write_headers
    ).json()
    assert (job["kind"], job["state"]) == ("manual", "queued")
    twice = service.client.post(
        "/api/v1/jobs", json={"project": "o/r", "head_sha": "a" * 40}, headers=service.write_headers
    )
    assert twice.status_code == 409
