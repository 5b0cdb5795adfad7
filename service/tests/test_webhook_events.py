"""What events ask for: GitHub's own examples, and the stories of a pull request, a merge queue, a repository."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from github_examples import EXAMPLES, example
from sqlalchemy import select

from gprojci_service.models import Job, Project, PullRequest, WebhookDelivery
from gprojci_service.webhooks.events import HANDLERS

HEAD, BASE, OTHER, NEXT = "a" * 40, "b" * 40, "c" * 40, "d" * 40
ASK_FOR_NOTHING = {
    "issue_comment": {"created"},  # on an issue
    "check_run": {"created", "completed", "requested_action", "rerequested"},  # of other Apps
    "check_suite": {"requested", "completed", "rerequested"},  # of repositories and heads that are unknown here
    "repository": {"created", "edited", "renamed", "transferred", "privatized", "publicized"},
}
CHANGE_NO_CODE = {"assigned", "unassigned", "labeled", "unlabeled", "locked", "unlocked"}
CHANGE_NO_CODE |= {"review_requested", "review_request_removed"}


def deliver(service, event: str, payload: dict[str, Any]) -> tuple[str, str]:
    """Delivers and processes; the state and detail that the delivery then has."""
    assert service.deliver(event, payload).status_code == 202
    service.work_off()
    with service.context.database.session(writes=False) as session:
        row = session.scalars(select(WebhookDelivery).order_by(WebhookDelivery.id.desc()).limit(1)).one()
        return row.state, row.detail


def change_project(service, change: Callable[[Project], None]) -> None:
    """Changes the only project there is."""
    with service.context.database.session(writes=True) as session:
        change(session.scalars(select(Project)).one())


def project(service) -> Project:
    """The only project there is."""
    with service.context.database.session(writes=False) as session:
        return session.scalars(select(Project)).one()


def expected_state(event: str, payload: dict[str, Any]) -> str:
    """What an example must come to where nothing but the examples before it happened."""
    action = payload.get("action")
    if event not in HANDLERS or action in ASK_FOR_NOTHING.get(event, ()):
        return "ignored"
    if event == "push" and not payload["ref"].startswith("refs/heads/"):
        return "ignored"
    return "ignored" if event == "pull_request" and action in CHANGE_NO_CODE else "processed"


def test_no_example_of_any_event_is_an_error(service):
    for entry in EXAMPLES:
        payload = copy.deepcopy(entry["payload"])
        if entry["event"] in ASK_FOR_NOTHING:
            payload["repository"]["id"] = 1  # unknown here, whatever came before
        payload.get("pull_request", {}).pop("updated_at", None)  # they are of several stories, and out of order
        assert service.deliver(entry["event"], payload).status_code == 202
    service.work_off()
    with service.context.database.session(writes=False) as session:
        rows = session.scalars(select(WebhookDelivery).order_by(WebhookDelivery.id)).all()
    assert len(rows) == len(EXAMPLES)
    for entry, row in zip(EXAMPLES, rows, strict=True):
        assert row.detail
        assert row.state == expected_state(entry["event"], entry["payload"]), (row.event, row.action, row.detail)


def test_every_handled_event_has_an_example():
    assert {entry["event"] for entry in EXAMPLES} >= set(HANDLERS)


def test_examples_of_a_push(service):
    payload = example("push", ref="refs/heads/master")
    assert deliver(service, "push", payload)[1].endswith("made")
    (job,) = service.jobs()
    assert (job["kind"], job["head_sha"], job["ref"]) == ("push", payload["after"], "master")
    assert deliver(service, "push", example("push", ref="refs/tags/simple-tag", deleted=True))[0] == "ignored"


def test_examples_of_a_pull_request(service):
    def act(action: str, second: int) -> tuple[str, str]:
        payload = example("pull_request", action)
        payload["pull_request"]["updated_at"] = at(second)
        return deliver(service, "pull_request", payload)

    opened = example("pull_request", "opened")
    act("opened", 0)
    (job,) = service.jobs()
    heads = opened["pull_request"]["head"]["sha"], opened["pull_request"]["base"]["sha"]
    assert (job["kind"], job["state"], job["head_sha"], job["base_sha"]) == ("pull_request", "queued", *heads)
    assert act("closed", 1)[1] == "1 job(s) cancelled"
    act("reopened", 2)
    assert [job["state"] for job in service.jobs()] == ["queued", "cancelled"]
    assert act("converted_to_draft", 3)[1] == "1 job(s) cancelled"
    act("ready_for_review", 4)
    assert [job["state"] for job in service.jobs()] == ["queued", "cancelled", "cancelled"]


def test_examples_of_a_merge_group(service):
    payload = example("merge_group", "checks_requested")
    deliver(service, "merge_group", payload)
    (job,) = service.jobs()
    group = payload["merge_group"]
    assert (job["kind"], job["head_sha"], job["base_sha"]) == ("merge_group", group["head_sha"], group["base_sha"])
    assert job["ref"].startswith("gh-readonly-queue/main/")
    state = deliver(service, "merge_group", payload | {"action": "destroyed", "reason": "dequeued"})
    assert state == ("processed", "1 job(s) cancelled")
    assert "dequeued" in service.job(job["id"])["detail"]


def test_a_rerequested_check_run_reruns_its_job_once(service, push_payload):
    deliver(service, "push", push_payload())
    (job,) = service.jobs()
    payload = example("check_run", "rerequested")
    payload["repository"]["id"] = 42
    payload["check_run"] |= {"head_sha": HEAD, "external_id": str(job["id"])}
    assert deliver(service, "check_run", payload) == ("processed", "its job is still open")
    service.client.post(f"/api/v1/jobs/{job['id']}/cancel", json={}, headers=service.write_headers)
    deliver(service, "check_run", payload)
    deliver(service, "check_run", payload)
    newer, older = service.jobs()
    assert (newer["retry_of_id"], newer["state"], older["state"]) == (older["id"], "queued", "cancelled")


@pytest.mark.parametrize("external_id", ["", None, "x", "999", "9" * 30, "²"])
def test_a_check_run_of_somebody_else_reruns_nothing(service, push_payload, external_id):
    deliver(service, "push", push_payload())
    payload = example("check_run", "rerequested")
    payload["repository"]["id"] = 42
    payload["check_run"] |= {"head_sha": HEAD, "external_id": external_id}
    assert deliver(service, "check_run", payload) == ("ignored", "the check run is about no job of ours")


def test_a_check_run_of_another_commit_or_project_reruns_nothing(service, push_payload):
    deliver(service, "push", push_payload())
    payload = example("check_run", "rerequested")
    payload["check_run"] |= {"head_sha": HEAD, "external_id": str(service.jobs()[0]["id"])}
    assert deliver(service, "check_run", payload)[0] == "ignored"
    payload["repository"]["id"], payload["check_run"]["head_sha"] = 42, OTHER
    assert deliver(service, "check_run", payload)[0] == "ignored"


def test_a_rerequested_check_suite_reruns_every_job_of_that_head(service, pull_request_payload):
    service.settings.default_hardware = ["cpu", "h200"]
    deliver(service, "pull_request", pull_request_payload())
    for job in service.jobs():
        service.client.post(f"/api/v1/jobs/{job['id']}/cancel", json={}, headers=service.write_headers)
    payload = example("check_suite", "rerequested")
    payload["repository"]["id"], payload["check_suite"]["head_sha"] = 42, HEAD
    deliver(service, "check_suite", payload)
    assert [(job["hardware"], job["state"]) for job in service.jobs()[:2]] == [("h200", "queued"), ("cpu", "queued")]
    assert deliver(service, "check_suite", payload) == ("processed", "its jobs are still open")


def test_a_rerequested_check_suite_is_no_way_around_the_approval(service, pull_request_payload):
    deliver(service, "pull_request", pull_request_payload(fork=True))
    deliver(service, "pull_request", pull_request_payload("closed", fork=True, state="closed"))
    payload = example("check_suite", "rerequested")
    payload["repository"]["id"], payload["check_suite"]["head_sha"] = 42, HEAD
    deliver(service, "check_suite", payload)
    assert service.jobs()[0]["state"] == "awaiting_approval"


def test_a_draft_is_measured_when_it_is_ready_or_when_asked_for(service, pull_request_payload):
    state = deliver(service, "pull_request", pull_request_payload(draft=True))
    assert state[1].startswith("a draft is measured once it is ready for review")
    deliver(service, "pull_request", pull_request_payload("synchronize", OTHER, draft=True))
    assert [(job["head_sha"], job["state"]) for job in service.jobs()] == [(OTHER, "draft"), (HEAD, "cancelled")]
    service.hello()
    assert service.claim().status_code == 204
    payload = example("check_suite", "rerequested")
    payload["repository"]["id"], payload["check_suite"]["head_sha"] = 42, OTHER
    deliver(service, "check_suite", payload)
    asked_for = service.jobs()[0]
    assert (asked_for["head_sha"], asked_for["state"]) == (OTHER, "queued")
    deliver(service, "pull_request", pull_request_payload("converted_to_draft", OTHER, draft=True))
    assert service.jobs()[0]["state"] == "draft"
    assert deliver(service, "pull_request", pull_request_payload("ready_for_review", OTHER))[0] == "processed"
    assert [job["state"] for job in service.jobs()] == ["queued", "cancelled", "cancelled"]


def test_a_draft_from_before_drafts_had_jobs_is_measured_when_asked_for(service, push_payload):
    deliver(service, "push", push_payload())
    facts = {"title": "A change", "head_ref": "topic", "base_sha": BASE, "base_ref": "main", "draft": True}
    with service.context.database.session(writes=True) as session:
        session.add(PullRequest(project_id=project(service).id, number=7, head_sha=OTHER, **facts))
    payload = example("check_suite", "rerequested")
    payload["repository"]["id"], payload["check_suite"]["head_sha"] = 42, OTHER
    assert deliver(service, "check_suite", payload)[1] == "job(s) 2 made"
    assert [(job["head_sha"], job["state"]) for job in service.jobs()] == [(OTHER, "queued"), (HEAD, "queued")]


def test_a_fork_that_is_ready_still_waits_for_its_approval(service, pull_request_payload):
    deliver(service, "pull_request", pull_request_payload(draft=True, fork=True))
    assert service.jobs()[0]["state"] == "draft"
    deliver(service, "pull_request", pull_request_payload("ready_for_review", fork=True))
    assert [job["state"] for job in service.jobs()] == ["awaiting_approval"]


def at(second: int) -> str:
    """A moment as GitHub writes it."""
    return f"2026-01-02T03:04:{second:02}Z"


def pushed(make, head: str, before: str, second: int) -> dict[str, Any]:
    """A push to the pull request's branch."""
    return make("synchronize", head, updated_at=at(second)) | {"before": before, "after": head}


@pytest.mark.parametrize("second", [2, 1])
def test_an_older_push_that_comes_late_is_not_the_present_head(service, pull_request_payload, second):
    deliver(service, "pull_request", pull_request_payload(updated_at=at(0)))
    deliver(service, "pull_request", pushed(pull_request_payload, OTHER, NEXT, second))
    state = deliver(service, "pull_request", pushed(pull_request_payload, NEXT, HEAD, 1))
    assert (state[0], "came late" in state[1]) == ("ignored", True)
    assert [(job["head_sha"], job["state"]) for job in service.jobs()] == [(OTHER, "queued"), (HEAD, "cancelled")]
    deliver(service, "pull_request", pushed(pull_request_payload, NEXT, OTHER, second))  # back, within the same second
    assert service.jobs()[0]["head_sha"] == NEXT


@pytest.mark.parametrize("second", [1, 0])
def test_a_pull_request_that_was_closed_is_not_opened_late(service, pull_request_payload, second):
    deliver(service, "pull_request", pull_request_payload("closed", state="closed", updated_at=at(second)))
    late = pull_request_payload(updated_at=at(0))
    late["repository"]["full_name"] = "o/former"
    assert deliver(service, "pull_request", late)[0] == "ignored"
    assert (service.jobs(), project(service).name) == ([], "o/r")
    deliver(service, "pull_request", pull_request_payload("reopened", updated_at=at(2)))
    assert [job["state"] for job in service.jobs()] == ["queued"]


def test_a_force_push_back_is_measured_again(service, pull_request_payload):
    for action, head in (("opened", HEAD), ("synchronize", OTHER), ("synchronize", HEAD)):
        deliver(service, "pull_request", pull_request_payload(action, head))
    jobs = [(job["head_sha"], job["state"]) for job in service.jobs()]
    assert jobs == [(HEAD, "queued"), (OTHER, "cancelled"), (HEAD, "cancelled")]


def test_a_force_push_back_to_a_measured_commit_ends_what_it_replaces(service, pull_request_payload):
    deliver(service, "pull_request", pull_request_payload())
    with service.context.database.session(writes=True) as session:
        session.scalars(select(Job)).one().state = "finished"
    deliver(service, "pull_request", pull_request_payload("synchronize", OTHER))
    assert deliver(service, "pull_request", pull_request_payload("synchronize"))[1] == "its job existed already"
    assert [job["state"] for job in service.jobs()] == ["cancelled", "finished"]


def test_a_job_cancelled_by_hand_stays_cancelled(service, pull_request_payload):
    deliver(service, "pull_request", pull_request_payload())
    service.client.post(f"/api/v1/jobs/{service.jobs()[0]['id']}/cancel", json={}, headers=service.write_headers)
    deliver(service, "pull_request", pull_request_payload("synchronize"))
    assert [job["state"] for job in service.jobs()] == ["cancelled"]


def test_another_base_is_another_measurement(service, pull_request_payload):
    deliver(service, "pull_request", pull_request_payload())
    edited = pull_request_payload("edited", base={"sha": OTHER, "ref": "release", "repo": {"id": 42}})
    assert deliver(service, "pull_request", edited | {"changes": {"title": {"from": "Old"}}})[0] == "ignored"
    deliver(service, "pull_request", edited | {"changes": {"base": {"ref": {"from": "main"}, "sha": {"from": BASE}}}})
    newer, older = service.jobs()
    assert (newer["base_sha"], newer["state"], older["state"]) == (OTHER, "queued", "cancelled")
    assert (older["superseded_by_id"], older["detail"]) == (newer["id"], "superseded by base release")


def test_a_project_follows_its_repository(service, push_payload):
    deliver(service, "push", push_payload())
    payload = example("repository", "transferred")
    payload["repository"] |= {"id": 42, "default_branch": "trunk"}
    deliver(service, "repository", payload)
    found = project(service)
    name = payload["repository"]["full_name"]
    assert (found.name, found.default_branch, found.github_id) == (name, "trunk", 42)
    assert found.clone_url == payload["repository"]["clone_url"]


def test_another_repository_of_the_same_name_is_another_project(service, push_payload):
    deliver(service, "push", push_payload())
    namesake = push_payload(OTHER)
    namesake["repository"]["id"] = 43
    assert deliver(service, "push", namesake)[0] == "processed"
    first, second = sorted(service.jobs(), key=lambda job: job["id"])
    assert first["project_id"] != second["project_id"]
    names = [found["name"] for found in service.client.get("/api/v1/projects").json()]
    assert names == ["o/r", f"o/r@{first['project_id']}"]
    assert deliver(service, "push", push_payload("d" * 40))[0] == "processed"  # whoever speaks last has the name


@pytest.mark.parametrize("action", ["archived", "deleted"])
def test_an_archived_or_deleted_repository_gets_no_new_jobs(service, push_payload, pull_request_payload, action):
    deliver(service, "push", push_payload())
    payload = example("repository", "renamed")
    payload["repository"] = push_payload()["repository"]
    state = deliver(service, "repository", payload | {"action": action})
    assert state == ("processed", "project o/r archived, 1 job(s) cancelled")
    assert deliver(service, "push", push_payload(OTHER))[0] == "ignored"
    assert deliver(service, "pull_request", pull_request_payload())[0] == "ignored"
    (job,) = service.jobs()
    rerun = service.client.post(f"/api/v1/jobs/{job['id']}/rerun", headers=service.write_headers)
    assert (rerun.status_code, rerun.json()["error"]) == (409, "ProjectArchived")
    asked = {"project": "o/r", "head_sha": OTHER}
    assert service.client.post("/api/v1/jobs", json=asked, headers=service.write_headers).status_code == 409
    deliver(service, "repository", payload | {"action": "unarchived"})
    assert deliver(service, "push", push_payload("d" * 40))[0] == "processed"


def test_an_installation_comes_and_goes(service, push_payload):
    deliver(service, "push", push_payload())
    created = example("installation", "created")
    created["repositories"][0]["id"] = 42
    deliver(service, "installation", created)
    assert project(service).installation_id == created["installation"]["id"]
    deleted = example("installation", "deleted")
    assert deliver(service, "installation", deleted) == ("processed", "0 job(s) of no project cancelled")  # another's
    deleted["installation"]["id"] = created["installation"]["id"]
    assert deliver(service, "installation", deleted) == ("processed", "1 job(s) of o/r cancelled")
    assert project(service).installation_id is None


def test_a_repository_is_given_to_an_installation_and_taken_from_it(service, push_payload):
    deliver(service, "push", push_payload())
    added, removed = example("installation_repositories", "added"), example("installation_repositories", "removed")
    added["repositories_added"][0]["id"] = removed["repositories_removed"][0]["id"] = 42
    deliver(service, "installation_repositories", added)
    assert project(service).installation_id == added["installation"]["id"]
    deliver(service, "installation_repositories", removed)  # by another installation: the repository was transferred
    assert project(service).installation_id == added["installation"]["id"]
    removed["installation"] = added["installation"]
    assert deliver(service, "installation_repositories", removed)[1] == "1 job(s) of o/r cancelled"
    assert project(service).installation_id is None


def test_a_suspended_installation_has_its_jobs_cancelled(service, push_payload):
    payload = example("installation", "suspend")
    deliver(service, "push", push_payload() | {"installation": {"id": payload["installation"]["id"]}})
    assert deliver(service, "installation", payload)[1] == "1 job(s) of o/r cancelled"
    assert project(service).installation_id == payload["installation"]["id"]
    assert deliver(service, "installation", example("installation", "unsuspend"))[0] == "processed"


@pytest.mark.parametrize("event", sorted(HANDLERS))
def test_an_action_that_github_may_add_is_acknowledged(service, event):
    payload = next(entry["payload"] for entry in EXAMPLES if entry["event"] == event)
    if "action" in payload:
        assert deliver(service, event, payload | {"action": "something_new"})[0] == "ignored"


@pytest.mark.parametrize(
    ("written", "stored"),
    [('"\\ud800"', "�"), ('"a\\u0000b"', "a�b"), ('"\\ud83d\\ude00"', "😀"), ('{"\\udc00": 1}', {"�": 1})],
)
def test_text_that_the_database_cannot_hold_is_no_obstacle(service, written, stored):
    assert service.deliver("star", b'{"text": ' + written.encode() + b"}").status_code == 202
    with service.context.database.session(writes=False) as session:
        assert session.scalars(select(WebhookDelivery.payload)).one() == {"text": stored}


@pytest.mark.parametrize(
    "body", [b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
)
def test_what_only_looks_like_json_is_refused(service, body):
    answer = service.deliver("star", body)
    assert (answer.status_code, answer.json()["error"]) == (400, "PayloadInvalid")
