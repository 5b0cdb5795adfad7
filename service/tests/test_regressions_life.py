"""The life of a regression: opened once per step, grouped by commit, moved, closed, opened again, triaged by people."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from gprojci_service.models import (
    Commit,
    Job,
    Notification,
    Regression,
    RegressionEvent,
    RegressionSeries,
    Sample,
    Series,
    SeriesStep,
)
from gprojci_service.regressions import commands
from gprojci_service.regressions.limits import LimitFinding, note_limits

sys.path.insert(0, str(Path(__file__).parent))
from regression_history import History


@pytest.fixture
def history(service):
    """A project with thirty measured commits at one level."""
    made = History(service.context.database)
    made.measure(30, dq_error=0.002, forward_ratio_anchor=1.2)
    return made


@pytest.fixture
def stepped(history):
    """The same after a step of the time, looked at."""
    history.measure(6, dq_error=0.002, forward_ratio_anchor=1.26)
    history.look()
    return history


def test_a_step_opens_one_regression_however_often_it_is_seen(stepped):
    for _ in range(3):
        stepped.measure(1, dq_error=0.002, forward_ratio_anchor=1.26)
        stepped.look()
    regression = stepped.only()
    assert (stepped.sha(regression.last_good_id), stepped.sha(regression.first_bad_id)) == (
        f"{30:040x}",
        f"{31:040x}",
    )
    assert regression.state == "new"
    assert [event.kind for event in stepped.all(RegressionEvent)] == ["opened", "series"]
    assert [told.event for told in stepped.all(Notification)] == ["regression.opened"]


def test_memory_that_grew_is_a_regression_and_bare_seconds_are_none(history):
    gib = 2.0**30
    history.measure(30, peak_memory=gib, forward_seconds=0.01)
    history.measure(6, peak_memory=1.1 * gib, forward_seconds=0.02)
    history.look()
    history.only()
    (step,) = history.kept_steps()
    assert (step.series_id, step.change) == (history.series["peak_memory"], pytest.approx(0.1, abs=0.01))


def test_the_steps_of_every_series_are_kept_for_the_pages(stepped):
    (step,) = stepped.kept_steps()
    assert (step.series_id, step.change) == (stepped.series["forward_ratio_anchor"], pytest.approx(0.05, abs=0.01))
    assert stepped.sha(step.commit_id) == f"{31:040x}"
    stepped.measure(20, dq_error=0.004, forward_ratio_anchor=1.26)
    with stepped.database.session(writes=True) as session:
        session.execute(update(Sample).values(revision="ruler"))  # as if they were a peer's, which open nothing
        session.get_one(SeriesStep, (step.series_id, step.commit_id)).change = 9.0
        session.add(SeriesStep(series_id=step.series_id, commit_id=1, change=1.0))
    stepped.look()
    kept = {(one.series_id, stepped.sha(one.commit_id)): one.change for one in stepped.kept_steps()}
    assert kept == {
        (stepped.series["forward_ratio_anchor"], f"{31:040x}"): pytest.approx(0.05, abs=0.01),
        (stepped.series["dq_error"], f"{37:040x}"): pytest.approx(1.0, abs=0.01),
    }
    assert len(stepped.all(Regression)) == 1


def test_without_a_step_nothing_is_opened(history):
    history.measure(10, dq_error=0.002, forward_ratio_anchor=1.2)
    history.look()
    assert history.all(Regression) == []


def test_what_gets_better_opens_nothing(history):
    history.measure(8, dq_error=0.001, forward_ratio_anchor=1.1)
    history.look()
    assert history.all(Regression) == []


def test_other_branches_open_nothing(history):
    history.measure(8, ref="topic", dq_error=0.004, forward_ratio_anchor=1.5)
    history.look()
    assert history.all(Regression) == []


def test_series_that_step_at_one_commit_are_one_regression(history):
    history.measure(6, dq_error=0.003, forward_ratio_anchor=1.4)
    history.look()
    regression = history.only()
    assert {entry.regression_id for entry in history.all(RegressionSeries)} == {regression.id}
    assert len(history.all(RegressionSeries)) == 2
    (told,) = history.all(Notification)
    assert told.severity == "critical"
    assert len(told.body["data"]["series"]) == 2


def test_a_later_step_is_another_regression(stepped):
    stepped.measure(24, dq_error=0.002, forward_ratio_anchor=1.26)
    stepped.measure(6, dq_error=0.002, forward_ratio_anchor=1.4)
    stepped.look()
    assert len(stepped.all(Regression)) == 2


def test_a_commit_measured_in_between_moves_the_range(stepped):
    (sha,) = stepped.measure(1, hours=30.5, dq_error=0.002, forward_ratio_anchor=1.26)
    stepped.look()
    regression = stepped.only()
    assert stepped.sha(regression.first_bad_id) == sha
    assert stepped.sha(regression.last_good_id) == f"{30:040x}"
    assert "range" in [event.kind for event in stepped.all(RegressionEvent)]


def test_the_repair_closes_it_and_the_return_opens_it_again(stepped):
    repaired = stepped.measure(24, dq_error=0.002, forward_ratio_anchor=1.2)
    stepped.look()
    regression = stepped.only()
    assert (regression.state, regression.fixed_by_sha) == ("fixed", repaired[0])
    back = stepped.measure(6, dq_error=0.002, forward_ratio_anchor=1.26)
    stepped.look()
    stepped.look()
    regression = stepped.only()
    assert (regression.state, stepped.sha(regression.first_bad_id)) == ("reopened", back[0])
    told = [row.event for row in stepped.all(Notification)]
    assert told == ["regression.opened", "regression.fixed", "regression.reopened"]


def test_a_repair_that_lasts_some_commits_only_changes_nothing_of_which_step_is_which(stepped):
    stepped.measure(6, dq_error=0.002, forward_ratio_anchor=1.2)
    stepped.look()
    back = stepped.measure(6, dq_error=0.002, forward_ratio_anchor=1.26)
    for _ in range(2):
        stepped.look()
    (entry,) = stepped.all(RegressionSeries)
    assert stepped.sha(entry.first_bad_id) == back[0]
    assert [event.kind for event in stepped.all(RegressionEvent)] == ["opened", "series", "state", "range", "state"]


def test_a_repair_by_hand_that_repairs_nothing_is_found_out(service, stepped):
    (sha,) = stepped.measure(1, dq_error=0.002, forward_ratio_anchor=1.26)
    path = f"/api/v1/regressions/{stepped.only().id}/state"
    body = {"state": "fixed", "commit": sha}
    assert service.client.post(path, json=body, headers=service.write_headers).status_code == 200
    stepped.measure(2, dq_error=0.002, forward_ratio_anchor=1.26)
    stepped.look()
    assert stepped.only().state == "fixed"
    stepped.measure(2, dq_error=0.002, forward_ratio_anchor=1.26)
    stepped.look()
    assert stepped.only().state == "reopened"


def test_a_broken_limit_opens_at_once_and_a_later_commit_that_keeps_it_closes(history):
    shas = history.measure(3, dq_error=0.002, forward_ratio_anchor=1.2)

    def note(sha, failed, value):
        with history.database.session(writes=True) as session:
            job = session.scalars(select(Job).where(Job.head_sha == sha)).one()
            commit = session.scalars(select(Commit).where(Commit.sha == sha)).one()
            series = session.get_one(Series, history.series["dq_error"])
            note_limits(session, job, commit, [LimitFinding(series.id, failed, value, 0.0035)])

    (elsewhere,) = history.measure(1, ref="topic", dq_error=0.5)
    note(elsewhere, True, 0.5)  # of another branch: its gate's business
    assert history.all(Regression) == []
    note(shas[0], True, 0.5)
    note(shas[1], True, 0.5)
    assert (history.only().state, history.sha(history.only().first_bad_id)) == ("new", shas[0])
    note(f"{1:040x}", False, 0.002)  # an older commit measured again says nothing of the newer
    assert history.only().state == "new"
    note(shas[2], False, 0.002)
    assert (history.only().state, history.only().fixed_by_sha) == ("fixed", shas[2])


TRIAGE = [
    ("new", {"state": "ignored"}, 422, "ReasonMissing"),
    ("new", {"state": "ignored", "reason": "  "}, 422, "ReasonMissing"),
    ("new", {"state": "ignored", "reason": "the price of the new mask"}, 200, None),
    ("new", {"state": "reopened"}, 409, "TransitionForbidden"),
    ("new", {"state": "fixed"}, 422, "FixMissing"),
    ("new", {"state": "fixed", "commit": "0000"}, 422, "FixMissing"),
    ("new", {"state": "fixed", "commit": "eeee"}, 422, "FixMissing"),
    ("new", {"state": "nonsense"}, 422, "InvalidRequest"),
    ("acknowledged", {"state": "acknowledged", "reason": "more is known"}, 200, None),
    ("ignored", {"state": "acknowledged"}, 200, None),
    ("fixed", {"state": "acknowledged"}, 409, "TransitionForbidden"),
    ("fixed", {"state": "reopened"}, 200, None),
    ("reopened", {"state": "fixed", "commit": f"{31:040x}"}, 200, None),
]


def test_which_state_may_follow_which(service, stepped):
    number = stepped.only().id
    for state, body, status, error in TRIAGE:
        with service.context.database.session(writes=True) as session:
            session.scalars(select(Regression)).one().state = state
        path = f"/api/v1/regressions/{number}/state"
        answered = service.client.post(path, json=body, headers=service.write_headers)
        assert (answered.status_code, answered.json().get("error")) == (status, error), (state, body)
        assert stepped.only().state == (body["state"] if status == 200 else state)


def test_people_own_and_comment_and_all_of_it_is_kept(service, stepped):
    path = f"/api/v1/regressions/{stepped.only().id}"
    headers = service.write_headers
    assert service.client.post(f"{path}/comments", json={"text": "it is the mask"}).status_code == 401
    assert service.client.post(f"{path}/comments", json={"text": " "}, headers=headers).status_code == 422
    assert service.client.post(f"{path}/comments", json={"text": "it is the mask"}, headers=headers).status_code == 201
    assert service.client.put(f"{path}/owner", json={"owner": "Ada"}, headers=headers).json()["owner"] == "Ada"
    shown = service.client.get(path).json()
    assert [(one["kind"], one["author"]) for one in shown["events"]] == [
        ("opened", "gprojci"),
        ("series", "gprojci"),
        ("comment", "u"),
        ("owner", "u"),
    ]
    assert shown["series"][0]["change"] == pytest.approx(0.05, abs=0.005)


def test_the_list_can_be_filtered(service, stepped):
    def listed(**filters):
        answered = service.client.get("/api/v1/regressions", params=filters)
        return [one["id"] for one in answered.json()] if answered.is_success else answered.json()["error"]

    number = stepped.only().id
    assert (listed(), listed(state="open"), listed(state=["fixed", "new"])) == ([number], [number], [number])
    assert (listed(state="fixed"), listed(owner="Ada"), listed(before=number)) == ([], [], [])
    assert (listed(state="nonsense"), listed(project="no/such")) == ("InvalidRequest", "ProjectNotFound")


def test_the_commands_do_the_same(service, stepped, monkeypatch):
    number = str(stepped.only().id)

    def run(*words):
        def request(client, method, path, **options):
            answered = service.client.request(method, f"/api/v1{path}", headers=service.write_headers, **options)
            assert answered.is_success, answered.text
            return answered.json()

        monkeypatch.setattr(commands, "call", request)
        done = CliRunner().invoke(commands.regression, words)
        assert done.exit_code == 0, done.output
        return done.output

    assert "forward_ratio_anchor of gproj" in run("list", "--state", "open")
    assert run("ack", number, "--owner", "Ada") == f"regression {number} is acknowledged\n"
    assert run("ignore", number, "--reason", "known") == f"regression {number} is ignored\n"
    run("comment", number, "as agreed")
    assert run("fix", number, "--commit", f"{31:040x}") == f"regression {number} is fixed\n"
    assert run("reopen", number) == f"regression {number} is reopened\n"
    shown = run("show", number)
    assert "u: comment as agreed" in shown
    assert "acknowledged → ignored known" in shown
    assert '"state": "reopened"' in run("show", number, "--json")


def test_on_its_page_whoever_is_signed_in_does_the_same_and_nobody_else(service, stepped):
    browser = TestClient(service.app, follow_redirects=False)
    page = f"/regressions/{stepped.only().id}"

    def post(path, **fields):
        found = re.search(r'name="csrf" value="([^"]+)"', browser.get(page if path != "/sign-in" else path).text)
        mark = html.unescape(found.group(1)) if found else "none"
        return browser.post(path, data={"csrf": mark, **fields}).status_code

    assert [post(f"{page}/{what}", text="x") for what in ("state", "owner", "comments")] == [401, 401, 401]
    secret = service.write_headers["Authorization"].removeprefix("Bearer ")
    assert post("/sign-in", token=secret, next=page) == 303
    assert post(f"{page}/comments", text="x", csrf="forged") == 403
    assert post(f"{page}/state", state="ignored", reason="") == 422
    assert post(f"{page}/state", state="fixed", commit="0-0") == 422
    assert post(f"{page}/state", state="acknowledged", reason="it is the mask", commit="") == 303
    assert post(f"{page}/owner", owner="Ada") == 303
    assert post(f"{page}/comments", text="looking") == 303
    said = [(event.kind, event.after, event.text, event.author) for event in stepped.all(RegressionEvent)][2:]
    assert said == [
        ("state", "acknowledged", "it is the mask", "u"),
        ("owner", "Ada", None, "u"),
        ("comment", None, "looking", "u"),
    ]
