"""The set-up of a GitHub App by its manifest: who may, what GitHub is asked, and that credentials are shown once."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest
from fastapi.testclient import TestClient
from github_server import OPERATIONS

from gprojci_service.github import app as app_client
from gprojci_service.github import setup
from gprojci_service.webhooks.events import HANDLERS

TOKENS = OPERATIONS["/app/installations/{installation_id}/access_tokens"]["post"]["requestBody"]["schema"]


@pytest.fixture
def database_url(sqlite_url):
    """One kind of database: nothing here is stored."""
    return sqlite_url


@pytest.fixture
def settings(settings, github):
    """Settings without an App, of a service that people reach over https."""
    settings.github_api_url, settings.public_url = github.url, "https://ci.example.com"
    return settings


@pytest.fixture
def browser(service):
    """A browser, which keeps cookies."""
    return TestClient(service.app, base_url="https://ci.example.com")


def address(service, organization=None):
    body = {"organization": organization}
    answer = service.client.post("/api/v1/github/setup", json=body, headers=service.write_headers)
    assert answer.status_code == 201, answer.text
    return answer.json()["address"]


def begin(service, browser, organization=None):
    """Opens the page; where its form goes, the state in that, and the manifest."""
    page = browser.get(address(service, organization))
    assert page.status_code == 200
    target, manifest = (html.unescape(re.search(f'{name}="([^"]+)"', page.text)[1]) for name in ("action", "value"))
    return page, target, parse_qs(urlsplit(target).query)["state"][0], json.loads(manifest)


def done(browser, code="abc", state=""):
    return browser.get("/github/setup/done", params={"code": code, "state": state})


def test_an_app_is_created_and_its_credentials_are_shown_once(service, github, browser):
    github.codes = {"abc"}
    page, target, state, manifest = begin(service, browser)
    assert target.startswith(f"{github.url}/settings/apps/new?state=")
    assert f"form-action {github.url};" in page.headers["content-security-policy"]
    assert manifest["hook_attributes"]["url"] == "https://ci.example.com/webhooks/github"
    assert manifest["redirect_url"] == "https://ci.example.com/github/setup/done"
    shown = done(browser, state=state)
    assert shown.status_code == 200
    for secret in (github.private_key, "GPROJCI_GITHUB_APP_ID=1234", "GPROJCI_WEBHOOK_SECRET=a new secret"):
        assert secret.strip() in html.unescape(shown.text)
    assert (shown.headers["cache-control"], shown.headers["referrer-policy"]) == ("no-store", "no-referrer")
    again = done(browser, state=state)
    assert (again.status_code, "belongs to another browser" in again.text) == (403, True)


def test_the_manifest_asks_for_what_the_service_uses_and_for_no_more(service):
    asked = setup.manifest(service.settings)
    jsonschema.validate(asked["default_permissions"], TOKENS["properties"]["permissions"])
    assert asked["default_permissions"].keys() <= TOKENS["properties"]["permissions"]["properties"].keys()
    used = {**app_client.READING, **app_client.REPORTING, **app_client.COMMENTING}  # writing goes last
    assert {name: asked["default_permissions"][name] for name in used} == used
    unasked = {"ping", "installation", "installation_repositories"}
    assert set(asked["default_events"]) == set(HANDLERS) - unasked


def test_an_organisation_gets_its_own_page(service, github, browser):
    assert begin(service, browser, "gproj-ci")[1].startswith(f"{github.url}/organizations/gproj-ci/settings/apps/new?")
    body = {"organization": "../settings"}
    answer = service.client.post("/api/v1/github/setup", json=body, headers=service.write_headers)
    assert answer.status_code == 422


@pytest.mark.parametrize("path", ["/github/setup?key=x", "/github/setup/done?code=abc&state=x"])
def test_nobody_gets_in_without_the_operators_key(service, github, browser, path):
    github.codes = {"abc"}
    assert browser.get(path).status_code == 403
    assert service.client.post("/api/v1/github/setup", json={}).status_code == 401
    assert github.requests == []


def test_a_state_of_another_browser_is_refused(service, github, browser):
    github.codes = {"abc"}
    state = begin(service, browser)[2]
    other = TestClient(service.app, base_url="https://ci.example.com")
    assert done(other, state=state).status_code == 403
    begin(service, other)
    assert done(other, state=state).status_code == 403
    key = parse_qs(urlsplit(address(service)).query)["key"][0]
    assert done(browser, state=key).status_code == 403  # signed by us, for something else
    assert github.requests == []


def test_an_address_is_valid_for_an_hour(service, browser, monkeypatch):
    monkeypatch.setattr(setup, "VALID_FOR", -setup.VALID_FOR)
    old = browser.get(address(service))
    assert (old.status_code, "older than an hour" in old.text) == (403, True)


@pytest.mark.parametrize("code", ["used", "a/../b"])
def test_a_code_that_github_does_not_know_shows_nothing(service, github, browser, code):
    shown = done(browser, code, begin(service, browser)[2])
    assert shown.status_code in (422, 502)
    assert "PRIVATE KEY" not in shown.text


def test_it_is_closed_once_there_is_an_app_and_where_the_key_would_be_overheard(service, browser):
    page = address(service)
    service.settings.public_url = "http://ci.example.com"
    assert browser.get(page).status_code == 422
    service.settings.public_url, service.settings.github_app_id = "https://ci.example.com", "1"
    assert browser.get(page).status_code == 409
    answer = service.client.post("/api/v1/github/setup", json={}, headers=service.write_headers)
    assert (answer.status_code, answer.json()["error"]) == (409, "AppConfigured")


def test_the_web_address_follows_the_api(service):
    service.settings.github_api_url = "https://api.github.com"
    assert setup.web_url(service.settings) == "https://github.com"
    service.settings.github_api_url = "https://git.example.com/api/v3"
    assert setup.web_url(service.settings) == "https://git.example.com"
