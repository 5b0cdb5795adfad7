"""The clients of GitHub against a server that answers as GitHub does, and fails as it does."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from github_server import APP_ID, INSTALLATION, Fault, start

from gprojci_service.errors import ConfigurationError
from gprojci_service.github.app import AppClient
from gprojci_service.github.client import Recorder, TokenClient, connect
from gprojci_service.github.outgoing import Outgoing
from gprojci_service.github.rest import Failure
from gprojci_service.settings import load_settings

HEAD = "a" * 40
STATUS = Outgoing("commit_status", "o/r", f"/repos/o/r/statuses/{HEAD}", {"state": "pending", "context": "gprojci/cpu"})
QUEUED = {
    "name": "GProj CI (cpu)",
    "head_sha": HEAD,
    "external_id": "1",
    "status": "queued",
    "output": {"title": "queued", "summary": "queued"},
}


def check_run(number=None, may_exist=False, **changes):
    return Outgoing("check_run", "o/r", "/repos/o/r/check-runs", {**QUEUED, **changes}, number, may_exist)


@pytest.fixture
def settings():
    """Settings of a service that is not started."""
    return load_settings(database_url="sqlite://", broker_url="redis://127.0.0.1:9/0", webhook_secret="x" * 16)


@pytest.fixture
def token(github):
    return TokenClient(github.url, github.personal_token, timeout_seconds=5)


@pytest.fixture
def app(github):
    return AppClient(github.url, APP_ID, github.private_key, timeout_seconds=5)


def test_a_personal_token_sets_statuses(github, token):
    assert token.send(STATUS).outcome == "sent"
    assert github.statuses == [{**STATUS.payload, "sha": HEAD}]


def test_a_personal_token_creates_no_check_runs(github, token):
    answer = token.send(check_run())
    assert (answer.outcome, "GitHub App" in answer.detail, github.requests) == ("recorded", True, [])


def test_without_credentials_nothing_is_sent(settings):
    assert isinstance(connect(settings), Recorder)
    assert "no GitHub credentials" in connect(settings).send(STATUS).detail
    assert connect(settings).clone_token("o/r") is None


@pytest.mark.parametrize(
    ("status", "headers", "message", "outcome", "seconds"),
    [
        (401, {}, "Bad credentials", "refused", None),
        (404, {}, "Not Found", "refused", None),
        (422, {}, "Validation Failed", "refused", None),
        (403, {}, "Resource not accessible by integration", "refused", None),
        (403, {"retry-after": "90"}, "", "again", 90),
        (403, {}, "You have exceeded a secondary rate limit.", "again", 60),
        (403, {"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1"}, "no", "refused", None),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "IN 1000"}, "", "again", 1000),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "IN 999999"}, "", "again", 3 * 3600),
        (403, {"x-ratelimit-remaining": "0"}, "", "again", 60),
        (429, {}, "", "again", 60),
        (429, {"retry-after": "soon"}, "", "again", 60),
        (503, {"retry-after": "30"}, "", "again", 30),
        (500, {}, "", "again", None),
        (502, {}, "", "again", None),
    ],
)
def test_passing_faults_are_told_from_refusals(github, token, status, headers, message, outcome, seconds):
    headers = {
        name: str(round(time.time() + float(value[3:]))) if value.startswith("IN ") else value
        for name, value in headers.items()
    }
    github.faults = [Fault(status, headers, message)]
    before = datetime.now(UTC)
    answer = token.send(STATUS)
    assert (answer.outcome, f"HTTP {status}" in answer.detail) == (outcome, True)
    if seconds is None:
        assert answer.not_before is None
    else:
        assert abs(answer.not_before - before - timedelta(seconds=seconds)) < timedelta(seconds=5)


def test_a_renamed_repository_is_followed_with_method_and_body(github, app):
    app.send(STATUS)
    github.installed, github.moved = {"n/s": INSTALLATION}, {"o/r": (42, "n/s")}
    assert app.send(STATUS).outcome == "sent"
    created = app.send(check_run())
    assert created.outcome == "sent"
    assert app.send(check_run(may_exist=True)).check_run_id == created.check_run_id  # a GET with parameters
    assert app.send(check_run(created.check_run_id, status="in_progress")).outcome == "sent"
    followed = [one.method for one in github.requests if one.path.startswith("/repositories/42/check-runs")]
    assert followed == ["POST", "PATCH", "PATCH"]
    assert len(github.statuses) == 2


def test_a_transferred_repository_is_reported_to_as_its_new_installation(github, app):
    app.send(STATUS)
    github.installed, github.moved = {"n/s": 99}, {"o/r": (42, "n/s")}
    assert app.send(STATUS).outcome == "sent"
    assert len(github.statuses) == 2


def test_a_credential_is_not_taken_to_another_host(github, token):
    other, stop = start()
    github.faults = [
        Fault(307, {"location": f"{other.url.replace('127.0.0.1', 'localhost')}/repos/o/r/statuses/{HEAD}"})
    ]
    answer = token.send(STATUS)
    stop()
    assert (answer.outcome, "another host" in answer.detail, other.requests) == ("refused", True, [])


def test_redirects_in_a_circle_end(github, token):
    github.faults = [Fault(301, {"location": f"{github.url}/x"}) for _ in range(9)]
    answer = token.send(STATUS)
    assert (answer.outcome, len(github.requests)) == ("refused", 6)


def test_after_a_rate_limit_github_is_asked_nothing(github, app):
    app.send(STATUS)
    github.faults = [Fault(429, {"retry-after": "100"}, path="/statuses/")]
    first, asked = app.send(STATUS), len(github.requests)
    second, third = app.send(STATUS), app.send(check_run())
    assert (len(github.requests), len(github.statuses)) == (asked, 1)
    assert [second.outcome, third.outcome] == ["again", "again"]
    assert second.not_before == third.not_before == first.not_before
    assert "rate limit" in second.detail


def test_a_cut_connection_passes(github, token):
    github.faults = [Fault(cut=True)]
    answer = token.send(STATUS)
    assert (answer.outcome, answer.not_before) == ("again", None)
    assert token.send(STATUS).outcome == "sent"


def test_a_github_that_hangs_is_given_a_rest(github):
    github.faults = [Fault(seconds=0.5, after=True)]
    client = TokenClient(github.url, github.personal_token, timeout_seconds=0.2)
    answer = client.send(STATUS)
    assert (answer.outcome, "no answer within 0.2 s" in answer.detail) == ("again", True)
    assert client.send(STATUS).not_before == answer.not_before
    assert len(github.requests) == 1
    time.sleep(max(0.0, (answer.not_before - datetime.now(UTC)).total_seconds()))
    assert client.send(STATUS).outcome == "sent"


def test_an_outage_passes():
    assert TokenClient("http://127.0.0.1:9", "secret").send(STATUS).outcome == "again"


def test_the_app_asks_for_its_installation_and_for_the_least_permissions(github, app):
    assert [app.send(STATUS).outcome, app.send(check_run()).outcome] == ["sent", "sent"]
    (issued,) = github.tokens.values()
    assert (issued["installation"], issued["permissions"]) == (INSTALLATION, {"checks": "write", "statuses": "write"})
    assert len(github.asked("GET", "/installation")) == 1
    assert len(github.statuses) == len(github.check_runs) == 1


def test_a_token_near_its_end_is_not_used_any_more(github, app):
    github.lifetime = timedelta(minutes=4)
    app.send(STATUS)
    github.lifetime = timedelta(minutes=6)
    app.send(STATUS)
    app.send(STATUS)
    assert (len(github.tokens), len(github.statuses)) == (2, 3)


def test_a_revoked_token_is_replaced(github, app):
    app.send(STATUS)
    github.tokens.clear()
    assert app.send(STATUS).outcome == "sent"


def test_an_app_that_was_installed_anew_is_found(github, app):
    app.send(STATUS)
    github.installed, github.tokens = {"o/r": 78}, {}
    assert app.send(STATUS).outcome == "sent"
    assert [token["installation"] for token in github.tokens.values()] == [78]


def test_an_app_that_is_not_installed_is_refused_until_it_is(github, app):
    github.installed = {}
    answer = app.send(STATUS)
    assert (answer.outcome, "not installed on o/r" in answer.detail) == ("refused", True)
    github.installed = {"o/r": 5}
    assert app.send(STATUS).outcome == "sent"


def test_the_app_reads_with_a_token_that_can_only_read(github, app):
    app.send(STATUS)
    github.faults = [Fault(200, message="the branch", path="/branches/main")]
    assert app.get("/repos/o/r/branches/main")["message"] == "the branch"
    assert [issued["permissions"] for issued in github.tokens.values()] == [
        {"checks": "write", "statuses": "write"},
        {"contents": "read", "pull_requests": "read"},
    ]
    with pytest.raises(Failure, match="not installed on o/other"):
        app.get("/repos/o/other/branches/main")


def test_what_has_not_changed_is_not_sent_again(github, app):
    github.permissions["ada"] = "write"
    path = "/repos/o/r/collaborators/ada/permission"
    first, second = app.get(path), app.get(path)
    assert (second, github.unchanged) == (first, 1)
    github.permissions["ada"] = "read"
    assert (app.get(path)["permission"], app.get(path)["permission"], github.unchanged) == ("read", "read", 2)


def test_another_apps_key_is_refused(github):
    answer = AppClient(github.url, "4321", github.private_key, 5).send(STATUS)
    assert (answer.outcome, "HTTP 401" in answer.detail) == ("refused", True)


def test_an_answer_that_is_not_githubs_is_no_success(github, app):
    github.faults = [Fault(200, message="a proxy's page", path="/installation")]
    answer = app.send(STATUS)
    assert (answer.outcome, "GPROJCI_GITHUB_API_URL" in answer.detail) == ("again", True)


def test_a_check_run_is_created_once_and_then_changed(github, app):
    number = app.send(check_run()).check_run_id
    done = {"status": "completed", "conclusion": "success", "completed_at": "2026-01-02T03:04:05Z"}
    assert app.send(check_run(number, status="in_progress")).check_run_id == number
    assert app.send(check_run(number, **done)).check_run_id == number
    assert github.check_runs[number]["history"] == [
        ("queued", None),
        ("in_progress", None),
        ("completed", "success"),
    ]
    assert len(github.check_runs) == 1


def test_a_check_run_whose_creation_was_not_answered_is_found_again(github, app):
    other = app.send(check_run(external_id="2")).check_run_id
    github.faults = [Fault(cut=True, after=True, method="POST", path="/check-runs")]
    assert app.send(check_run()).outcome == "again"
    answer = app.send(check_run(may_exist=True, status="in_progress"))
    assert (answer.outcome, len(github.check_runs)) == ("sent", 2)
    assert answer.check_run_id != other
    assert github.check_runs[answer.check_run_id]["history"] == [("queued", None), ("in_progress", None)]


def test_a_check_run_of_another_app_is_left_alone(github, app):
    theirs = app.send(check_run()).check_run_id
    github.check_runs[theirs]["app"] = {"id": 9, "client_id": "Iv1.other"}
    assert app.send(check_run(may_exist=True)).check_run_id != theirs


def test_a_clone_token_reads_one_repository(github, app):
    issued = github.tokens[app.clone_token("o/r")]
    assert (issued["permissions"], issued["repositories"]) == ({"contents": "read"}, ["r"])
    assert app.clone_token("o/r") != app.clone_token("o/r")
    github.faults = [Fault(500)]
    assert app.clone_token("o/r") is None
    assert app.clone_token("o/other") is None


def given(settings, **changes):
    return load_settings(**{**settings.model_dump(), **changes})


@pytest.fixture
def key_file(github, tmp_path):
    path = tmp_path / "app.pem"
    path.write_text(github.private_key)
    return path


def test_the_settings_choose_the_client(settings, key_file):
    assert isinstance(connect(given(settings, github_app_id="1", github_app_key_file=key_file)), AppClient)
    assert isinstance(connect(given(settings, github_token="secret")), TokenClient)
    empty = given(settings, github_app_id="", github_app_key_file=" ", github_token="")
    assert isinstance(connect(empty), Recorder)


def test_an_app_and_a_token_exclude_each_other(settings, key_file):
    with pytest.raises(ConfigurationError, match=r"remove GPROJCI_GITHUB_TOKEN$"):
        given(settings, github_app_id="1", github_app_key_file=key_file, github_token="secret")


def test_half_an_app_is_an_error_that_names_the_other_half(settings, key_file):
    with pytest.raises(ConfigurationError, match=r"^GPROJCI_GITHUB_APP_KEY_FILE: is not set"):
        given(settings, github_app_id="1")
    with pytest.raises(ConfigurationError, match=r"^GPROJCI_GITHUB_APP_ID: is not set"):
        given(settings, github_app_key_file=key_file)


@pytest.mark.parametrize("content", [None, "", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----"])
def test_a_key_file_that_holds_no_key_ends_the_start(settings, tmp_path, content):
    path = tmp_path / "wrong.pem"
    if content is not None:
        path.write_text(content)
    reason = "cannot be read" if content is None else "not a private key without a password in PEM form"
    with pytest.raises(ConfigurationError, match=f"^GPROJCI_GITHUB_APP_KEY_FILE: .*{reason}"):
        given(settings, github_app_id="1", github_app_key_file=path)


def test_a_key_of_another_kind_ends_the_start(settings, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "ec.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    with pytest.raises(ConfigurationError, match="not an RSA key"):
        given(settings, github_app_id="1", github_app_key_file=tmp_path / "ec.pem")
