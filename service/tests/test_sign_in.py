"""Sign-in on the pages, and what may be done there: with a token of scope write, by a form of one's own session."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from gprojci_service.access import rate_limits, sessions
from gprojci_service.access import service as access
from gprojci_service.errors import JobNotOpen
from gprojci_service.models import Job, Token, now
from gprojci_service.pages import actions, regression_actions, token_actions
from gprojci_service.settings import load_settings

HEAD = "a" * 40
MANIFEST = '[backends.gproj]\nentry = "gproj:attention"\n[gate]\ndq_error_ceiling = 0.0035\n'


@pytest.fixture
def database_url(sqlite_url):
    """The pages ask either database the same; the services behind them are tested with both."""
    return sqlite_url


class Person:
    """A browser without scripts."""

    def __init__(self, service):
        self.service = service
        self.browser = TestClient(service.app, follow_redirects=False)

    def mark(self, path):
        found = re.search(r'name="csrf" value="([^"]+)"', self.browser.get(path).text)
        assert found, path
        return html.unescape(found.group(1))

    def post(self, path, **fields):
        return self.browser.post(path, data=fields)

    def sign_in(self, secret=None, address="/jobs"):
        secret = secret or self.service.write_headers["Authorization"].removeprefix("Bearer ")
        return self.post("/sign-in", token=secret, next=address, csrf=self.mark("/sign-in"))


@pytest.fixture
def person(service):
    return Person(service)


def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(service, person):
    answer = person.sign_in(address="/jobs?state=fail")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?state=fail")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Max-Age=43200", "Path=/"))
    assert "Secure" not in cookie  # the address is http here
    secret = service.write_headers["Authorization"].removeprefix("Bearer ")
    assert secret not in cookie
    page = person.browser.get("/")
    assert "Sign out" in page.text
    assert (page.headers["cache-control"], "content-encoding" in page.headers) == ("no-store", False)
    assert person.post("/sign-out", csrf="x").status_code == 403
    assert person.post("/sign-out", csrf=person.mark("/")).status_code == 303
    assert "Sign out" not in person.browser.get("/").text


def test_a_worker_is_drained_and_resumed_on_its_page(service, person):
    service.hello("gpu-1")
    assert "Drain gpu-1" not in person.browser.get("/workers").text
    assert person.post("/workers/gpu-1/drain", csrf="x").status_code == 401
    person.sign_in()
    assert person.post("/workers/gpu-1/drain", csrf="x").status_code == 403
    answer = person.post("/workers/gpu-1/drain", csrf=person.mark("/workers"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/workers")
    page = person.browser.get("/workers").text
    assert "Resume gpu-1" in page
    assert ">drained<" in page
    assert service.claim("gpu-1").status_code == 204
    looked_at = "/workers?state=drained&q=gpu&page=1"
    page = person.browser.get(looked_at).text
    assert 'name="next" value="/workers?state=drained&amp;q=gpu"' in page
    back = person.post("/workers/gpu-1/resume", csrf=person.mark(looked_at), next="/workers?state=drained&q=gpu")
    assert back.headers["location"] == "/workers?state=drained&q=gpu"
    assert "Drain gpu-1" in person.browser.get("/workers").text
    assert person.post("/workers/none/drain", csrf=person.mark("/workers")).status_code == 404


def test_behind_https_the_cookie_never_goes_over_http(service, person):
    service.settings.public_url = "https://ci.example.com"
    person.browser.base_url = "https://testserver"
    assert "Secure" in person.sign_in().headers["set-cookie"]


@pytest.mark.parametrize("address", ["//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nx: y", "jobs"])
def test_a_sign_in_leads_nowhere_else(person, address):
    assert person.sign_in(address=address).headers["location"] == "/"


def test_who_may_not_sign_in(service, person):
    worker = service.worker_headers["Authorization"].removeprefix("Bearer ")
    for secret, status, says in ((worker, 403, "worker&#39;s token"), ("gpci_no", 401, "does not exist")):
        answer = person.sign_in(secret)
        assert (answer.status_code, says in answer.text) == (status, True)
    assert person.post("/sign-in", token="x", csrf="forged").status_code == 403
    assert Person(service).post("/sign-in", token="x", csrf=person.mark("/sign-in")).status_code == 403
    assert person.browser.post("/sign-in", json={"token": "x"}).status_code == 422
    assert person.post("/sign-in", token="x" * 20_000).status_code == 413


def test_a_sign_in_is_not_open_to_guessing(person, monkeypatch):
    monkeypatch.setitem(rate_limits.LIMITS, "sign-in", rate_limits.RateLimitItemPerMinute(2))
    assert [person.sign_in("gpci_guess").status_code for _ in range(3)] == [401, 401, 429]
    assert person.sign_in().status_code == 303, "who has the right one is not held up"


def test_every_form_needs_a_session_its_mark_and_the_scope(service, person, pull_request_payload):
    service.deliver("pull_request", pull_request_payload())
    service.work_off()
    paths = [
        re.sub(r"\{\w+\}", "1", route.path)
        for router in (actions.router, regression_actions.router, token_actions.router)
        for route in router.routes
        if "POST" in route.methods and not route.path.startswith("/sign")
    ]
    assert len(paths) == 12
    assert {person.post(path, csrf="x").status_code for path in paths} == {401}
    person.sign_in()
    marks = ["", "forged", sessions.start(service.settings, None)[1].csrf]
    assert {person.post(path, csrf=mark).status_code for path in paths for mark in marks} == {403}
    with service.context.database.session(writes=True) as session:
        reads = access.create_token(session, "reader", "read")[1]
    reader = Person(service)
    reader.sign_in(reads)
    refused = [reader.post(path, csrf=reader.mark("/"), head_sha=HEAD, looked="yes") for path in paths]
    assert {(answer.status_code, "has scope" in answer.text) for answer in refused} == {(403, True)}
    assert service.job(1)["state"] == "queued"
    with service.context.database.session(writes=True) as session:
        access.revoke_token(session, 2)
    assert person.post(paths[0], csrf="x").status_code == 401  # the token was revoked, so the session has ended


def test_a_session_ends_after_twelve_hours_whatever_is_done_meanwhile(service, person, monkeypatch):
    began = now()
    monkeypatch.setattr(sessions, "now", lambda: began - timedelta(hours=11, minutes=59))
    person.sign_in()
    cookie = person.browser.cookies[sessions.COOKIE]
    assert "Sign out" in person.browser.get("/").text, "a minute is left"
    assert person.browser.cookies[sessions.COOKIE] == cookie, "looking at pages renews nothing"
    monkeypatch.setattr(sessions, "now", lambda: began - timedelta(hours=12, minutes=1))
    with service.context.database.session(writes=True) as session:
        ended = sessions.start(service.settings, session.get_one(Token, 2))[0]
    assert "Sign out" not in TestClient(service.app, cookies={sessions.COOKIE: ended}).get("/").text


def test_a_signature_of_another_secret_is_none(service, person):
    person.sign_in()
    forged = sessions.start(load_settings(**{**service.settings.model_dump(), "webhook_secret": "y" * 16}), None)[0]
    with service.context.database.session(writes=False) as session:
        for cookie in (forged, "", "a.b.c", None):
            assert sessions.visitor(session, service.settings, cookie) is None
        changed = load_settings(
            **{
                **service.settings.model_dump(),
                "webhook_secret": "y" * 16,
                "webhook_secret_previous": service.settings.webhook_secret,
            }
        )
        kept = sessions.visitor(session, changed, person.browser.cookies[sessions.COOKIE])
    assert kept is not None
    assert kept.may_write


def test_where_reading_is_closed_pages_ask_to_sign_in(service, person):
    service.settings.public_read = False
    asked = person.browser.get("/jobs?state=fail")
    assert asked.status_code == 401
    assert 'value="/jobs?state=fail"' in asked.text
    assert person.browser.get("/api/v1/jobs").status_code == 401
    person.sign_in()
    assert person.browser.get("/jobs").status_code == 200
    assert person.browser.get("/api/v1/jobs").status_code == 200  # what the pages link to
    body = {"project": "o/r", "head_sha": HEAD}
    assert person.browser.post("/api/v1/jobs", json=body).status_code == 401  # writing needs the header


def test_a_commit_is_approved_cancelled_and_rerun_on_its_page(service, person, pull_request_payload):
    service.deliver("pull_request", pull_request_payload(fork=True))
    service.work_off()
    (job,) = service.jobs()
    page = f"/jobs/{job['id']}"
    signed_out = person.browser.get(page).text
    assert f"/gprojci approve {HEAD}" in signed_out
    assert f'href="/sign-in?next={page}"' in signed_out
    assert "<form" not in signed_out.split("<main")[1]
    person.sign_in()
    mark = person.mark(page)
    assert person.post(f"{page}/approve", csrf=mark, head_sha=HEAD).status_code == 422  # not confirmed
    assert person.post(f"{page}/approve", csrf=mark, head_sha="c" * 40, looked="yes").status_code == 409
    answer = person.post(f"{page}/approve", csrf=mark, head_sha=HEAD, looked="yes")
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    assert service.job(job["id"])["approved_by"] == "u"
    assert "approved by u" in person.browser.get(page).text
    person.post(f"{page}/cancel", csrf=mark)
    assert service.job(job["id"])["detail"] == "cancelled by u on its page"
    again = person.post(f"{page}/rerun", csrf=mark)
    assert service.job(int(again.headers["location"].rpartition("/")[2]))["retry_of_id"] == job["id"]


def test_a_limit_is_accepted_on_the_page_and_shown_there(service, person, push_payload, make_report):
    service.deliver("push", push_payload())
    service.work_off()
    service.hello()
    claimed = service.claim().json()
    body = {"fencing_token": 1, "status": "measured", "report": make_report(dq=0.0038)}
    body["manifests"] = {"head": MANIFEST, "base": MANIFEST}
    service.worker(f"/attempts/{claimed['attempt']['id']}/report", body)
    service.work_off()
    page = f"/jobs/{claimed['job']['id']}"
    assert "Accept this finding" not in person.browser.get(page).text
    person.sign_in()
    assert '<option value="gproj/dq_error_ceiling">' in person.browser.get(page).text
    fields = {"csrf": person.mark(page), "finding": "gproj/dq_error_ceiling", "reason": "<script>known</script>"}
    assert person.post(f"{page}/accept", **fields).status_code == 303
    shown = person.browser.get(page).text
    assert "accepted by u: &lt;script&gt;known&lt;/script&gt;" in shown
    assert "Accept this finding" not in shown
    assert service.job(claimed["job"]["id"])["verdict"]["verdict"] == "pass"


def test_a_mistake_stands_beside_its_field_with_what_was_entered(service, person, push_payload, make_report):
    service.deliver("push", push_payload())
    service.work_off()
    service.hello()
    claimed = service.claim().json()
    body = {"fencing_token": 1, "status": "measured", "report": make_report(dq=0.0038)}
    body["manifests"] = {"head": MANIFEST, "base": MANIFEST}
    service.worker(f"/attempts/{claimed['attempt']['id']}/report", body)
    service.work_off()
    person.sign_in()
    fields = {"csrf": person.mark("/jobs/1"), "finding": "gproj/dq_error_ceiling", "reason": " "}
    answer = person.post("/jobs/1/accept", **fields)
    assert answer.status_code == 422
    assert 'name="reason" required maxlength="500" autocomplete="off" value=" " aria-invalid="true"' in answer.text
    said = re.search(r'id="problem-accept-reason" role="alert">.*?</svg> (.*?)</span>', answer.text, re.DOTALL)
    assert said
    assert said.group(1).startswith("say why it is accepted")
    answer = person.post("/jobs/1/accept", **fields | {"finding": "gproj/nothing", "reason": "a <b>good</b> one"})
    assert answer.status_code == 409
    assert 'id="problem-accept-finding"' in answer.text
    assert 'value="a &lt;b&gt;good&lt;/b&gt; one"' in answer.text
    answer = person.post("/jobs/1/cancel", csrf=fields["csrf"])  # about no field of a form
    assert answer.status_code == 409
    assert re.search(r'problem-bar" role="alert">.*job 1 is finished', answer.text, re.DOTALL)
    assert person.post("/jobs/99/cancel", csrf=fields["csrf"]).status_code == 404


def test_a_change_that_fails_half_way_is_not_kept(service, person, push_payload, monkeypatch):
    service.deliver("push", push_payload())
    service.work_off()
    person.sign_in()

    def half_way(session, job_id, reason):
        session.get_one(Job, job_id).detail = "half of a change"
        session.flush()
        raise JobNotOpen("no further")

    monkeypatch.setattr(actions.jobs, "cancel", half_way)
    assert person.post("/jobs/1/cancel", csrf=person.mark("/jobs/1")).status_code == 409
    assert service.job(1)["detail"] is None
