"""Tokens: every endpoint that changes something needs the right one."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from sqlalchemy import select

from gprojci_service.access import service as access
from gprojci_service.access import sessions
from gprojci_service.models import Token, now
from gprojci_service.models.token import SCOPES
from gprojci_service.pages import audit
from gprojci_service.pages import endpoints as pages
from gprojci_service.sharing import endpoints as sharing

OPEN = {"/webhooks/github", "/healthz", "/readyz"}
"""What needs no token: a webhook has a signature, and health tells nothing."""
VALUES = {"owner": "o", "name": "r", "sha": "a" * 40}
NEEDS = {"read": ("read", "write", "admin"), "write": ("write", "admin"), "admin": ("admin",), "worker": ("worker",)}


@pytest.fixture
def database_url(sqlite_url):
    """Either database is asked the same here."""
    return sqlite_url


def needed(method, path):
    """The scope that the documents promise for an operation, said here once more and by other rules than the code's."""
    if path.startswith("/api/v1/worker/"):
        return "worker"
    if path.startswith(("/api/v1/tokens", "/api/v1/audit", "/api/v1/github/")):
        return "admin"
    if (method, path) == ("delete", "/api/v1/projects/{owner}/{name}"):
        return "admin"
    secret = path.endswith(("/channels", "/notifications", "/file"))
    return "read" if method == "get" and not secret else "write"


def operations(service):
    """Every operation of the OpenAPI document: method, path, address, and the scope that it needs."""
    document = service.client.get("/api/v1/openapi.json").json()
    for path, methods in document["paths"].items():
        for method in methods.keys() & {"get", "put", "post", "patch", "delete"}:
            if path not in OPEN:
                url = re.sub(r"\{(\w+)\}", lambda found: VALUES.get(found[1], "1"), path)
                yield method, path, url, needed(method, path)


def test_every_operation_needs_its_scope(service):
    """Walks the OpenAPI document with no token, wrong, expired, revoked ones, every scope, and a session's cookie."""
    service.settings.public_read = False
    with service.context.database.session(writes=True) as session:
        by_scope = {scope: access.create_token(session, scope, scope)[1] for scope in SCOPES}
        expired = access.create_token(session, "expired", "admin", expires_in=timedelta(seconds=-1))[1]
        gone, revoked = access.create_token(session, "revoked", "admin")
        gone.revoked_at = now()
        token = session.scalars(select(Token).where(Token.name == "admin")).one()
        cookie = sessions.start(service.settings, token)[0]
    refused = {"none": {}, "wrong": bearer("gpci_wrong"), "expired": bearer(expired), "revoked": bearer(revoked)}
    refused |= {"empty": bearer(""), "basic": {"Authorization": f"Basic {by_scope['admin']}"}}
    service.app.state.rate_limits.count = lambda *_: None  # that many wrong ones come from one address here
    tried = set()
    for method, path, url, scope in operations(service):
        for what, headers in refused.items():
            answer = service.client.request(method, url, headers=headers)
            assert answer.status_code == 401, (method, path, what, "is let in")
            assert answer.json()["error"] == "Unauthorized"
        for given, secret in by_scope.items():
            answer = service.client.request(method, url, headers=bearer(secret))
            if given in NEEDS[scope]:
                assert answer.status_code not in (401, 403), (method, path, given, answer.text)
            else:
                assert answer.status_code == 403, (method, path, given, "is let in")
                assert answer.json()["error"] == "Forbidden"
        answer = service.client.request(method, url, headers={"Cookie": f"{sessions.COOKIE}={cookie}"})
        assert (answer.status_code == 401) == (scope != "read"), (method, path, "cookie")
        tried.add(scope)
    assert tried == set(NEEDS)


def test_a_claim_that_can_be_read_needs_its_scope(service):
    """It looks at its token by itself; the walk above sends no bodies."""
    with service.context.database.session(writes=True) as session:
        by_scope = {scope: access.create_token(session, scope, scope)[1] for scope in SCOPES}
    claim = {"worker": "host-1", "claim_id": "claim-one"}

    def status(headers):
        return service.client.post("/api/v1/worker/claim", json=claim, headers=headers).status_code

    assert (status({}), status(bearer("gpci_wrong"))) == (401, 401)
    assert {scope: status(bearer(secret)) for scope, secret in by_scope.items()} == {
        "worker": 404,  # it is let in, and has not said hello
        "read": 403,
        "write": 403,
        "admin": 403,
    }


def test_every_page_needs_a_session_where_reading_is_closed(service):
    service.settings.public_read = False
    paths = [
        route.path
        for router in (pages.router, audit.router, sharing.router)
        for route in router.routes
        if "GET" in route.methods
    ]
    assert len(paths) > 15
    for path in paths:
        answer = service.client.get(re.sub(r"\{(\w+)\}", lambda found: VALUES.get(found[1], "1"), path))
        assert answer.status_code == 401, path


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def test_a_token_gives_nothing_by_guessing(service):
    """Wrong ones are counted by address; whoever has the right one is not held up by a neighbour."""
    for _ in range(60):
        assert service.client.get("/api/v1/tokens", headers=bearer("gpci_guess")).status_code == 401
    refused = service.client.get("/api/v1/tokens", headers=bearer("gpci_guess"))
    assert (refused.status_code, refused.json()["error"]) == (429, "TooManyRequests")
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert service.client.get("/api/v1/tokens", headers=service.write_headers).status_code == 200


def test_a_token_is_shown_once_and_stored_hashed(service):
    made = service.client.post(
        "/api/v1/tokens", json={"name": "n", "scope": "admin"}, headers=service.write_headers
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
