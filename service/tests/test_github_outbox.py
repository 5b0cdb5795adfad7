"""What GitHub shows while a job lives, and that outages and rate limits delay it and lose nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from github_server import Fault
from sqlalchemy import func, select, update

from gprojci_service.github import outbox
from gprojci_service.github.outgoing import Answer
from gprojci_service.jobs.tasks import reap
from gprojci_service.models import Attempt, GithubReport, Job, Project, now
from gprojci_service.retries import next_attempt
from gprojci_service.settings import load_settings

HEAD, NEXT = "a" * 40, "c" * 40
MANIFEST = '[backends.gproj]\nentry = "gproj:attention"\n[gate]\ndq_error_ceiling = 100\n'
DECIDED = [("queued", None), ("in_progress", None), ("completed", "success")]


@pytest.fixture
def settings(settings, github, tmp_path):
    """The service's settings as an App that the stand-in for GitHub knows."""
    return load_settings(**{**settings.model_dump(), **github.settings(tmp_path)})


@pytest.fixture
def finish(service, make_report):
    """Claims the next job and measures it through to its verdict."""

    def run():
        service.hello()
        claimed = service.claim().json()
        body = {
            "fencing_token": claimed["attempt"]["fencing_token"],
            "status": "measured",
            "report": make_report(),
            "manifests": {"head": MANIFEST, "base": MANIFEST},
        }
        assert service.worker(f"/attempts/{claimed['attempt']['id']}/report", body).json()["accepted"]
        return claimed["job"]["id"]

    return run


def reports(service, kind="check_run"):
    with service.context.database.session(writes=False) as session:
        query = select(GithubReport).where(GithubReport.kind == kind).order_by(GithubReport.id)
        return list(session.scalars(query))


def let_time_pass(service):
    """Ends every wait, and has the reaper send what is due."""
    earlier = now() - timedelta(hours=1)
    with service.context.database.session(writes=True) as session:
        session.execute(update(GithubReport).values(created_at=earlier))
        waiting = GithubReport.next_attempt_at.is_not(None)
        session.execute(update(GithubReport).where(waiting).values(next_attempt_at=earlier))
    reap(service.context)
    service.work_off()


def test_a_check_run_lives_with_its_job(service, github, push_payload, finish):
    service.deliver("push", push_payload())
    service.work_off()
    (run,) = github.check_runs.values()
    assert (run["name"], run["head_sha"], run["history"]) == ("GProj CI (cpu)", HEAD, DECIDED[:1])
    service.hello()
    claimed = service.claim().json()
    service.work_off()
    assert run["history"] == DECIDED[:2]
    assert "started_at" in run
    service.hello(boot_id="second-boot")  # the first attempt is lost, the job tried again
    service.work_off()
    assert finish() == claimed["job"]["id"]
    service.work_off()
    assert run["history"] == DECIDED
    assert "| ✅ pass |" in run["output"]["summary"]
    assert run["details_url"] == f"{service.settings.public_url}/jobs/{claimed['job']['id']}"
    assert [status["state"] for status in github.statuses] == ["pending", "success"]
    assert {report.state for report in reports(service)} == {"sent"}
    assert (len(github.check_runs), len(github.tokens)) == (1, 1)


def test_two_tasks_that_are_told_of_one_report_at_once_send_it_once(service, github, push_payload):
    github.faults.append(Fault(503, path="/check-runs"))
    service.deliver("push", push_payload())
    service.work_off()
    (waiting,) = reports(service)
    with service.context.database.session(writes=True) as session:
        session.execute(update(GithubReport).values(next_attempt_at=None))
    taken = []

    def take():
        with service.context.database.session(writes=True) as session:
            taken.append(outbox.take(session, waiting.id))

    other = threading.Thread(target=take)
    with service.context.database.session(writes=True) as session:
        taken.append(outbox.take(session, waiting.id))
        other.start()
        other.join(0.3)  # it waits for this transaction
    other.join(30)
    assert [report is None for report in taken] == [False, True]


def test_a_forks_check_run_asks_for_action_until_it_is_approved(service, github, pull_request_payload):
    service.deliver("pull_request", pull_request_payload(fork=True))
    service.work_off()
    (run,) = github.check_runs.values()
    (job,) = service.jobs()
    assert f"gprojci job approve {job['id']} {HEAD}" in run["output"]["summary"]
    service.client.post(f"/api/v1/jobs/{job['id']}/approve", json={"head_sha": HEAD}, headers=service.write_headers)
    service.work_off()
    service.hello()
    service.claim()
    service.work_off()
    assert run["history"] == [("completed", "action_required"), *DECIDED[:2]]


def test_a_cancelled_job_completes_its_check_run(service, github, pull_request_payload):
    service.deliver("pull_request", pull_request_payload())
    service.work_off()
    service.deliver("pull_request", pull_request_payload("synchronize", NEXT))
    service.work_off()
    first, second = github.check_runs.values()
    assert first["history"] == [("queued", None), ("completed", "cancelled")]
    assert NEXT[:10] in first["output"]["summary"]
    assert second["history"] == [("queued", None)]
    told = [(status["sha"], status["state"]) for status in github.statuses]
    assert told == [(HEAD, "pending"), (NEXT, "pending"), (HEAD, "error")]
    assert github.statuses[2]["description"] == f"cancelled: superseded by commit {NEXT[:10]}"


def test_a_cancelled_job_leaves_the_status_to_a_newer_job_of_its_commit(service, github, pull_request_payload):
    service.deliver("pull_request", pull_request_payload())
    service.work_off()
    edited = pull_request_payload("edited", base={"sha": NEXT, "ref": "release", "repo": {"id": 42}})
    service.deliver("pull_request", edited | {"changes": {"base": {"ref": {"from": "main"}}}})
    service.work_off()
    assert [job["state"] for job in service.jobs()] == ["queued", "cancelled"]
    assert [status["state"] for status in github.statuses] == ["pending", "pending"]


def test_a_late_status_of_a_cancelled_job_does_not_hide_its_reruns(service, github, push_payload):
    service.deliver("push", push_payload())
    service.work_off()
    github.faults = [Fault(502, path="/statuses/")]
    (job,) = service.jobs()
    service.client.post(f"/api/v1/jobs/{job['id']}/cancel", json={}, headers=service.write_headers)
    service.work_off()
    service.client.post(f"/api/v1/jobs/{job['id']}/rerun", headers=service.write_headers)
    service.work_off()
    let_time_pass(service)
    assert [status["state"] for status in github.statuses] == ["pending", "pending"]
    assert reports(service, "commit_status")[1].state == "recorded"


def test_a_drafts_check_is_queued_until_it_is_ready(service, github, pull_request_payload):
    service.deliver("pull_request", pull_request_payload(draft=True))
    service.work_off()
    (run,) = github.check_runs.values()
    assert (run["status"], run["output"]["title"]) == ("queued", "a draft is measured once it is ready for review")
    service.deliver("pull_request", pull_request_payload("ready_for_review"))
    service.work_off()
    assert (run["history"], "will be measured" in run["output"]["title"]) == ([("queued", None)] * 2, True)
    assert [status["state"] for status in github.statuses] == ["pending", "pending"]


def test_every_head_that_is_gated_has_a_check_and_none_is_green_unmeasured(
    service, github, push_payload, pull_request_payload
):
    merge_group = {"head_sha": "1" * 40, "head_ref": "refs/heads/gh-readonly-queue/main/pr-7", "base_sha": "b" * 40}
    group = {
        "action": "checks_requested",
        "merge_group": {**merge_group, "base_ref": "refs/heads/main"},
        "repository": push_payload()["repository"],
    }
    service.settings.default_hardware = ["cpu", "a class that no worker has"]
    service.deliver("push", push_payload("2" * 40))
    service.deliver("merge_group", group)
    for number, changes in enumerate(({}, {"fork": True}, {"draft": True}, {"draft": True, "fork": True}), 3):
        payload = pull_request_payload("opened", str(number) * 40, **changes)
        service.deliver("pull_request", payload | {"number": number})
    service.work_off()
    shown = {(run["head_sha"][0], run["status"], run.get("conclusion")) for run in github.check_runs.values()}
    waits = ("completed", "action_required")
    assert shown == {("4", *waits), *((head, "queued", None) for head in "12356")}
    assert len(github.check_runs) == 12
    assert {status["state"] for status in github.statuses} == {"pending"}


@pytest.mark.parametrize("fault", [Fault(502), Fault(cut=True), Fault(cut=True, after=True)])
def test_an_outage_delays_and_loses_nothing(service, github, push_payload, finish, fault):
    github.faults = [fault] * 4
    service.deliver("push", push_payload())
    service.work_off()
    assert [report.state for kind in ("check_run", "commit_status") for report in reports(service, kind)] == [
        "pending"
    ] * 2
    finish()
    service.work_off()  # what happened meanwhile waits with it, without a request
    assert len(github.requests) == 2
    for _ in range(3):
        let_time_pass(service)
    assert [(run["status"], run["conclusion"]) for run in github.check_runs.values()] == [("completed", "success")]
    assert github.statuses[-1]["state"] == "success"
    assert [report.state for report in reports(service)] == ["recorded", "recorded", "sent"]
    assert [report.state for report in reports(service, "commit_status")] == ["recorded", "sent"]


def test_a_rate_limit_is_kept_and_what_waits_is_sent_after_it(service, github, push_payload):
    github.faults = [Fault(403, {"retry-after": "120"}, path="/statuses/")]
    before = now()
    service.deliver("push", push_payload())
    service.work_off()
    status, run = reports(service, "commit_status")[0], reports(service)[0]
    for report in (status, run):
        assert (report.state, report.attempts) == ("pending", 1)
        assert report.next_attempt_at > before + timedelta(seconds=120)
    assert github.check_runs == {}  # the limit is the installation's, so nothing else was asked
    asked = len(github.requests)
    reap(service.context)
    service.work_off()
    assert len(github.requests) == asked
    service.context.github.rest._rests_until.clear()
    let_time_pass(service)
    assert (len(github.statuses), len(github.check_runs)) == (1, 1)


def test_a_refusal_is_final_and_says_why(service, github, push_payload):
    github.installed = {}
    service.deliver("push", push_payload())
    service.work_off()
    (report,) = reports(service)
    assert (report.state, report.next_attempt_at) == ("failed", None)
    assert "not installed on o/r" in report.detail


def test_a_later_report_of_a_check_run_that_was_refused_creates_it(service, github, push_payload, finish):
    github.installed = {}
    service.deliver("push", push_payload())
    service.work_off()
    github.installed = {"o/r": 5}
    finish()
    service.work_off()
    (run,) = github.check_runs.values()
    assert run["history"][-1] == ("completed", "success")


def test_two_reports_of_a_job_are_never_under_way_at_once(service, github, push_payload):
    service.deliver("push", push_payload())
    service.work_off()
    (created,) = reports(service)
    with service.context.database.session(writes=True) as session:
        session.execute(update(GithubReport).values(state="pending"))
        assert outbox.take(session, created.id) is not None
        assert outbox.take(session, created.id) is None
    service.hello()
    service.claim()
    service.work_off()
    started = reports(service)[-1]
    assert (started.phase, started.state, started.attempts) == ("started", "pending", 0)
    with service.context.database.session(writes=True) as session:
        outbox.record_answer(session, created.id, Answer("sent", "", check_run_id=created.check_run_id))
    service.work_off()
    assert reports(service)[-1].state == "sent"
    assert github.check_runs[created.check_run_id]["status"] == "in_progress"


def test_a_sender_that_was_killed_is_replaced_and_doubles_nothing(service, github, push_payload):
    service.deliver("push", push_payload())
    with service.context.database.session(writes=True) as session:
        from gprojci_service.webhooks.service import process

        process(session, service.settings, 1)
    (created,) = reports(service)
    with service.context.database.session(writes=True) as session:
        outgoing = outbox.take(session, created.id)
    service.context.github.send(outgoing)  # … and killed before it could note the answer
    service.work_off()
    assert reports(service)[0].state == "pending"
    let_time_pass(service)
    assert (reports(service)[0].state, len(github.check_runs)) == ("sent", 1)


def test_after_a_week_a_report_is_given_up(service, github, push_payload):
    service.deliver("push", push_payload())
    service.work_off()
    (created,) = reports(service)
    with service.context.database.session(writes=True) as session:
        long_ago = now() - timedelta(days=8)
        session.execute(update(GithubReport).values(state="pending", created_at=long_ago))
        outbox.record_answer(session, created.id, Answer("again", "HTTP 502"))
    assert (reports(service)[0].state, reports(service)[0].detail) == ("failed", "HTTP 502")


def test_tries_come_later_each_time_and_not_all_at_once():
    moment = now()

    def delays(attempts, not_before=None):
        found = {(next_attempt(moment, attempts, not_before) - moment).total_seconds() for _ in range(50)}
        assert len(found) > 1
        return found

    for attempts, longest in ((1, 5), (2, 10), (5, 80), (9, 900), (10_000, 900)):
        assert all(longest / 2 <= delay <= longest for delay in delays(attempts))
    assert all(delay > 3600 for delay in delays(1, moment + timedelta(hours=1)))


@pytest.mark.parametrize("private", [True, False])
def test_a_worker_gets_a_clone_token_for_a_private_repository_only(service, github, push_payload, private):
    service.deliver("push", push_payload())
    service.work_off()
    with service.context.database.session(writes=True) as session:
        session.execute(update(Project).values(private=private))
    service.hello()
    project = service.claim().json()["project"]
    assert project["private"] == private
    if private:
        issued = github.tokens[project["clone_token"]]
        assert (issued["permissions"], issued["repositories"]) == ({"contents": "read"}, ["r"])
    else:
        assert project["clone_token"] is None


def test_a_claim_outlives_an_outage_of_github(service, github, push_payload):
    service.deliver("push", push_payload())
    service.work_off()
    with service.context.database.session(writes=True) as session:
        session.execute(update(Project).values(private=True))
    service.hello()
    github.faults = [Fault(502)]
    answer = service.claim()
    assert (answer.status_code, answer.json()["project"]["clone_token"]) == (200, None)
    assert service.jobs()[0]["state"] == "running"


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_claims_that_wait_for_github_hold_nobody_up(service, github, push_payload):
    """More of them than there are threads and connections for requests."""
    claims = 45
    service.deliver("push", push_payload())
    service.work_off()
    service.hello()
    with service.context.database.session(writes=True) as session:
        session.execute(update(Project).values(private=True))
        about = {"project_id": 1, "kind": "push", "head_sha": NEXT, "hardware": "cpu"}
        session.add_all(Job(dedup_key=f"another {number}", **about) for number in range(claims - 1))

    def running():
        with service.context.database.session(writes=False) as session:
            return session.scalar(select(func.count()).select_from(Attempt))

    with ThreadPoolExecutor(claims + 1) as pool:
        with github.lock:  # it answers nobody
            asked = [pool.submit(service.claim) for _ in range(claims)]
            give_up = time.monotonic() + 10  # GitHub is given up for silent after 15
            while running() < claims and time.monotonic() < give_up:
                time.sleep(0.05)
            assert running() == claims
            assert pool.submit(service.jobs).result(timeout=5)
        assert all(one.result().json()["project"]["clone_token"] for one in asked)
