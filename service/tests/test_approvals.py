"""Untrusted pull requests: nothing is built before somebody approved that very commit."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from gprojci_service.models import PullRequest
from gprojci_service.settings import load_settings

HEAD, NEXT, OTHER_BASE = "a" * 40, "c" * 40, "d" * 40


@pytest.fixture
def hardware():
    return ["cpu"]


@pytest.fixture
def settings(settings, github, tmp_path, hardware):
    """The service's settings as an App that the stand-in for GitHub knows."""
    return load_settings(**{**settings.model_dump(), **github.settings(tmp_path), "default_hardware": hardware})


def opened(service, pull_request_payload, action="opened", head=HEAD, **changes):
    service.deliver("pull_request", pull_request_payload(action, head, **changes))
    service.work_off()
    return service.jobs()


def approve(service, job_id, sha=HEAD):
    path = f"/api/v1/jobs/{job_id}/approve"
    return service.client.post(path, json={"head_sha": sha}, headers=service.write_headers)


@pytest.mark.parametrize(
    ("association", "state"),
    [
        ("FIRST_TIMER", "awaiting_approval"),
        ("FIRST_TIME_CONTRIBUTOR", "awaiting_approval"),
        ("NONE", "awaiting_approval"),
        ("CONTRIBUTOR", "queued"),
        ("MEMBER", "queued"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_first_commits_of_an_author_wait(service, pull_request_payload, association, state):
    (job,) = opened(service, pull_request_payload, author_association=association)
    assert job["state"] == state


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_check_says_what_it_waits_for_and_three_ways_to_approve(service, github, pull_request_payload):
    (job,) = opened(service, pull_request_payload, author_association="FIRST_TIME_CONTRIBUTOR")
    (run,) = github.check_runs.values()
    title = "waits for an approval of this commit: ben has contributed nothing here yet"
    assert (run["conclusion"], run["output"]["title"]) == ("action_required", title)
    assert github.statuses[0]["description"] == title
    for way in (f"/gprojci approve {HEAD}", f"/jobs/{job['id']})", f"gprojci job approve {job['id']} {HEAD}"):
        assert way in run["output"]["summary"]
    assert "has contributed nothing here yet" in service.client.get(f"/jobs/{job['id']}").text
    service.hello()
    assert service.claim().status_code == 204
    assert approve(service, job["id"], NEXT).json()["error"] == "JobNotWaiting"
    done = approve(service, job["id"]).json()
    assert (done["state"], done["approved_by"], done["detail"]) == ("queued", "u", None)
    assert service.claim().json()["job"]["head_sha"] == HEAD


@pytest.mark.parametrize("hardware", [["cpu", "h200"]])
def test_an_approval_is_of_the_commit_on_every_hardware_and_of_no_other_commit(service, pull_request_payload, hardware):
    first = opened(service, pull_request_payload, fork=True)
    assert [job["state"] for job in first] == ["awaiting_approval"] * 2
    approve(service, first[0]["id"])
    assert [job["state"] for job in service.jobs()] == ["queued"] * 2
    other_base = {"sha": OTHER_BASE, "ref": "next"}  # the same commit against another base was approved
    payload = pull_request_payload("edited", fork=True, base=other_base) | {"changes": {"base": {}}}
    service.deliver("pull_request", payload)
    service.work_off()
    assert [job["state"] for job in service.jobs()[:2]] == ["queued"] * 2
    pushed = opened(service, pull_request_payload, "synchronize", NEXT, fork=True)
    assert [job["state"] for job in pushed[:2]] == ["awaiting_approval"] * 2
    assert {job["state"] for job in pushed[2:]} == {"cancelled"}


def test_an_approval_does_not_carry_where_the_head_moved_before_the_build(service, github, pull_request_payload):
    """Whether a webhook said so already, or only GitHub knows it."""
    (job,) = opened(service, pull_request_payload, fork=True)
    approve(service, job["id"])
    service.hello()
    github.pulls[7] = {"head": {"sha": NEXT}}
    assert service.claim().status_code == 204
    assert NEXT[:10] in service.job(job["id"])["detail"]
    assert service.job(job["id"])["state"] == "cancelled"
    again = service.client.post(f"/api/v1/jobs/{job['id']}/rerun", headers=service.write_headers).json()
    assert again["state"] == "queued"
    with service.context.database.session(writes=True) as session:
        session.execute(update(PullRequest).values(head_sha=NEXT))
    asked = len(github.asked("GET", "/pulls/7"))
    assert service.claim().status_code == 204
    assert service.job(again["id"])["state"] == "cancelled"
    assert len(github.asked("GET", "/pulls/7")) == asked


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_head_that_is_still_there_is_built_and_no_other_commit_is_taken(service, github, pull_request_payload):
    (job,) = opened(service, pull_request_payload, fork=True)
    approve(service, job["id"])
    github.pulls[7] = {"head": {"sha": HEAD}}
    service.hello()
    attempt = service.claim().json()["attempt"]
    moment = "2026-01-02T03:04:05Z"
    other = {"sha": NEXT, "message": "m", "author_name": "n", "author_email": "e", "authored_at": moment, "parents": []}
    beat = {"fencing_token": 1, "resolved": {"head": other, "base": None}}
    refused = service.worker(f"/attempts/{attempt['id']}/heartbeat", beat)
    assert (refused.status_code, refused.json()["error"]) == (409, "LeaseLost")
