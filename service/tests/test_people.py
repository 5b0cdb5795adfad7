"""Sign-in with GitHub: who comes in, what GitHub lets them do in each project, and how a session ends."""

from __future__ import annotations

import html
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from github_server import CLIENT, Fault
from sqlalchemy import select

from gprojci_service.access import commands, people, sessions
from gprojci_service.app import create_app
from gprojci_service.errors import ConfigurationError
from gprojci_service.models import AuditEvent, Person, now
from gprojci_service.settings import load_settings


@pytest.fixture
def settings(settings, github, tmp_path):
    """The service as an App of the stand-in, with which people sign in."""
    client = {"github_client_id": CLIENT[0], "github_client_secret": CLIENT[1], "public_url": "http://testserver"}
    github.users = {"ada": 1, "eve": 2, "root": 3, "tri": 4}
    github.permissions = {"ada": "write", "eve": "read", "root": "admin", "tri": "triage"}
    return load_settings(**{**settings.model_dump(), **github.settings(tmp_path), **client})


@pytest.fixture
def database_url(sqlite_url):
    return sqlite_url


class Browser:
    """A browser that comes back from GitHub."""

    def __init__(self, service, github):
        self.service, self.github = service, github
        self.browser = TestClient(service.app, follow_redirects=False)

    def begin(self, address="/jobs"):
        answer = self.browser.get("/sign-in/github", params={"next": address})
        assert answer.status_code == 303
        return answer.headers["location"]

    def sign_in(self, login, address="/jobs"):
        return self.browser.get(self.github.authorize(self.begin(address), login))

    def post(self, path, **fields):
        found = re.search(r'name="csrf" value="([^"]+)"', self.browser.get("/").text)
        return self.browser.post(path, data={"csrf": html.unescape(found[1]) if found else "", **fields})


@pytest.fixture
def person(service, github):
    return Browser(service, github)


@pytest.fixture
def job(service, push_payload):
    service.deliver("push", push_payload())
    service.work_off()
    return 1


def test_there_and_back(service, person, github):
    answer = person.sign_in("ada", "/jobs?state=fail")
    assert answer.status_code == 200
    assert 'content="0; url=/jobs?state=fail"' in answer.text
    cookies = answer.headers.get_list("set-cookie")
    (session,) = [cookie for cookie in cookies if cookie.startswith(sessions.COOKIE)]
    assert all(word in session for word in ("HttpOnly", "SameSite=strict", "Max-Age=43200", "Path=/"))
    assert "signed in as ada" in person.browser.get("/jobs").text
    with service.context.database.session(writes=False) as database:
        assert [(row.github_id, row.login) for row in database.scalars(select(Person))] == [(1, "ada")]
    (token,) = github.user_tokens
    assert token not in "".join(str(seen.headers.get("authorization")) for seen in github.asked("GET", "permission"))


def test_the_way_there_asks_for_no_scope_and_has_state_and_a_challenge(person):
    asked = parse_qs(urlsplit(person.begin()).query)
    assert "scope" not in asked
    assert asked["redirect_uri"] == ["http://testserver/sign-in/github/done"]
    assert len(asked["state"][0]) >= 24
    assert len(asked["code_challenge"][0]) == 43


def test_nobody_is_signed_in_by_another_browser(service, person, github):
    """A code that somebody else was given must not sign this browser in as him (login CSRF)."""
    stolen = github.authorize(person.begin(), "eve")
    other = Browser(service, github)
    assert other.browser.get(stolen).status_code == 403
    other.begin()
    assert other.browser.get(stolen).status_code == 403
    assert other.browser.get("/sign-in/github/done?state=x&code=y").status_code == 403
    back = github.authorize(other.begin(), "eve")  # whose code fits this browser: its state alone is another's
    state = parse_qs(urlsplit(back).query)["state"][0]
    assert other.browser.get(back.replace(state, "x" * len(state))).status_code == 403
    assert "signed in as" not in other.browser.get("/").text


def test_a_code_is_good_once_and_github_may_fail(person, github):
    back = github.authorize(person.begin(), "ada")
    assert person.browser.get(back).status_code == 200
    person.begin()
    state = parse_qs(urlsplit(person.begin()).query)["state"][0]
    assert person.browser.get(f"/sign-in/github/done?code=x&state={state}").status_code == 403
    github.faults.append(Fault(500, path="/user"))
    assert person.sign_in("ada").status_code == 502


@pytest.mark.parametrize("address", ["//evil.example", "https://evil.example", "/\\\\evil.example"])
def test_it_leads_nowhere_else(person, address):
    assert 'content="0; url=/"' in person.sign_in("ada", address).text


def test_what_somebody_may_do_is_what_github_lets_them_now(service, person, github, job):
    person.sign_in("ada")
    assert person.post(f"/jobs/{job}/cancel").status_code == 303
    assert service.job(job)["detail"] == "cancelled by ada on its page"
    github.permissions["ada"] = "read"
    assert person.post(f"/jobs/{job}/rerun").status_code == 403
    github.permissions["ada"] = "admin"
    github.users["ada"] = 99  # another account has taken the name
    assert person.post(f"/jobs/{job}/rerun").status_code == 403
    github.users["ada"] = 1
    github.faults.append(Fault(500, path="/permission"))
    assert person.post(f"/jobs/{job}/rerun").status_code == 502
    assert person.post(f"/jobs/{job}/rerun").status_code == 303


@pytest.mark.parametrize("login", ["eve", "tri"])
def test_who_only_reads_changes_nothing(service, person, job, login):
    person.sign_in(login)
    for path in (f"/jobs/{job}/cancel", f"/jobs/{job}/rerun", f"/jobs/{job}/approve", f"/jobs/{job}/accept"):
        assert person.post(path).status_code == 403
    assert service.job(job)["state"] == "queued"


def test_the_audit_log_of_a_project_is_its_admins(service, person, github, job):
    person.sign_in("ada")
    person.post(f"/jobs/{job}/cancel")
    assert person.browser.get("/audit").status_code == 403
    assert person.browser.get("/audit?project=o/r").status_code == 403
    person.sign_in("root")
    assert person.browser.get("/audit").status_code == 403
    page = person.browser.get("/audit?project=o/r")
    assert page.status_code == 200
    assert "cancel_job" in page.text
    assert "<code>sign_in_with_github" not in page.text  # of no project


def test_a_closed_service_lets_in_who_has_a_part_in_it(service, person, job):
    service.settings.public_read = False
    assert person.sign_in("eve").status_code == 403  # everybody may read a public repository
    assert person.browser.get("/jobs").status_code == 401
    assert person.sign_in("ada").status_code == 200
    assert person.browser.get("/jobs").status_code == 200
    assert person.browser.post("/api/v1/jobs", json={}).status_code == 401


def test_a_session_ends_for_good(service, person):
    person.sign_in("ada")
    stolen = person.browser.cookies[sessions.COOKIE]
    assert person.post("/sign-out").status_code == 303
    thief = TestClient(service.app, cookies={sessions.COOKIE: stolen})
    assert "signed in as" not in thief.get("/").text
    person.sign_in("ada")
    with service.context.database.session(writes=True) as database:
        database.scalars(select(Person)).one().blocked_at = now()
    assert "signed in as" not in person.browser.get("/").text
    assert person.sign_in("ada").status_code == 403


def test_signing_in_is_written_down_and_bounded(service, person):
    person.sign_in("ada")
    with service.context.database.session(writes=False) as database:
        row = database.scalars(select(AuditEvent)).one()
    assert (row.actor, row.action, row.address) == ("ada", "sign_in_with_github", "testclient")
    answers = [person.browser.get("/sign-in/github").status_code for _ in range(31)]
    assert answers[-1] == 429


def test_without_a_client_there_is_no_sign_in_with_github(settings):
    without = load_settings(**{**settings.model_dump(), "github_client_id": None, "github_client_secret": None})
    browser = TestClient(create_app(without), follow_redirects=False)
    assert browser.get("/sign-in/github").status_code == 404
    assert "Sign in with GitHub" not in browser.get("/sign-in").text


@pytest.mark.parametrize("missing", ["github_client_secret", "github_app_id"])
def test_a_client_needs_its_secret_and_the_app(settings, missing):
    given = {**settings.model_dump(), missing: None}
    if missing == "github_app_id":
        given["github_app_key_file"] = None
    with pytest.raises(ConfigurationError, match="GPROJCI_GITHUB_CLIENT_ID"):
        load_settings(**given)


def test_a_person_is_blocked_by_a_command(service, person, monkeypatch):
    person.sign_in("ada")
    for name in ("database_url", "broker_url"):
        monkeypatch.setenv(f"GPROJCI_{name.upper()}", getattr(service.settings, name))
    monkeypatch.setenv("GPROJCI_WEBHOOK_SECRET", service.settings.webhook_secret.get_secret_value())
    run = CliRunner().invoke
    assert run(commands.person, ["block", "ada"]).exit_code == 0
    assert "signed in as" not in person.browser.get("/").text
    assert run(commands.person, ["unblock", "ada"]).exit_code == 0
    assert person.sign_in("ada").status_code == 200
    assert isinstance(run(commands.person, ["block", "nobody"]).exception, people.PersonNotFound)
    with service.context.database.session(writes=False) as database:
        actions = database.scalars(select(AuditEvent.action).where(AuditEvent.actor_kind == "command")).all()
    assert actions == ["block_person", "unblock_person"]
