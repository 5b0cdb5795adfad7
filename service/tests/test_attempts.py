"""Attempts: claimed once, fenced, recovered when lost, their report stored once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from gprojci_service.jobs.tasks import reap
from gprojci_service.models import Attempt, Job, LogChunk, Report, Token, Worker, now

MANIFESTS = {"head": "x", "base": "x"}
SAYINGS = (
    ("heartbeat", {}),
    ("log", {"sequence": 0, "text": "x"}),
    ("known", {"fingerprint": "f" * 64}),
    ("return", {"reason": "x"}),
)
"""What a worker says of its attempt before the report."""


@pytest.fixture
def job_id(service, push_payload) -> int:
    """A queued job, and a worker that said hello."""
    service.deliver("push", push_payload())
    service.work_off()
    service.hello()
    return service.jobs()[0]["id"]


def count(service, table) -> int:
    with service.context.database.session(writes=False) as session:
        return session.scalar(select(func.count()).select_from(table))


def expire(service, **columns) -> None:
    with service.context.database.session(writes=True) as session:
        session.execute(update(Attempt).where(Attempt.state == "running").values(**columns))


def report_body(attempt, **changes):
    return {"fencing_token": attempt["fencing_token"], "status": "measured", "manifests": MANIFESTS, **changes}


def test_a_claim_gives_the_job_once(service, job_id):
    answer = service.claim(claim_id="claim-one").json()
    assert answer["job"]["id"] == job_id
    assert answer["attempt"]["fencing_token"] == 1
    assert service.claim(claim_id="claim-one").json() == answer, "a repeated claim gets the same answer"
    assert service.claim(claim_id="claim-two").status_code == 204
    assert service.job(job_id)["state"] == "running"


def test_workers_that_claim_at_once_never_get_the_same(service, push_payload):
    for number in range(6):
        service.deliver("push", push_payload(f"{number}" * 40))
    service.work_off()
    for number in range(12):
        service.hello(f"host-{number}")
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: service.claim(f"host-{number}"), range(12)))
    got = [answer.json()["job"]["id"] for answer in answers if answer.status_code == 200]
    assert sorted(got) == sorted(job["id"] for job in service.jobs())
    assert {answer.status_code for answer in answers} == {200, 204}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # SQLite has one writer at a time
def test_a_job_that_another_claim_holds_is_passed_over_and_not_waited_for(service, job_id, push_payload):
    service.deliver("push", push_payload("c" * 40))
    service.work_off()
    with service.context.database.session(writes=True) as another:
        another.execute(select(Job).where(Job.id == job_id).with_for_update())
        assert service.claim().json()["job"]["head_sha"] == "c" * 40


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_workers_with_one_token_do_not_wait_for_each_other(service, job_id):
    """Its row, where its last use is noted, is locked by another request."""
    with service.context.database.session(writes=True) as session:
        session.execute(update(Token).values(last_used_at=None))
    with service.context.database.session(writes=True) as another, ThreadPoolExecutor(1) as pool:
        another.execute(select(Token).with_for_update())
        assert pool.submit(service.claim).result(timeout=10).json()["job"]["id"] == job_id
    assert service.worker("/alive", {"worker": "host-1"}).status_code == 200
    with service.context.database.session(writes=False) as session:
        used = session.scalar(select(Token.last_used_at).where(Token.scope == "worker"))
    assert now() - used < timedelta(minutes=1)


def test_another_hardware_class_gets_nothing(service, job_id):
    service.hello("gpu-host", hardware="h200")
    assert service.claim("gpu-host", job_id=job_id).status_code == 204


def test_an_unknown_worker_is_told_to_say_hello(service):
    answer = service.claim("stranger")
    assert (answer.status_code, answer.json()["error"]) == (404, "WorkerNotFound")


def test_an_idle_worker_stays_known(service, job_id):
    with service.context.database.session(writes=True) as session:
        session.execute(update(Worker).values(last_seen_at=now() - timedelta(hours=1)))
    assert service.worker("/alive", {"worker": "host-1"}).json() == {"draining": False}
    assert service.worker("/alive", {"worker": "stranger"}).status_code == 404
    with service.context.database.session(writes=False) as session:
        assert now() - session.scalar(select(Worker.last_seen_at)) < timedelta(minutes=1)


def test_heartbeat_renews_the_lease_and_shows_the_step(service, job_id):
    attempt = service.claim().json()["attempt"]
    expire(service, lease_expires_at=now() + timedelta(seconds=1))
    steps = [{"name": "fetch", "started_at": "2026-01-02T03:04:05Z", "seconds": 1.5, "status": "ok"}]
    body = {"fencing_token": 1, "step": "build", "steps": steps}
    answer = service.worker(f"/attempts/{attempt['id']}/heartbeat", body)
    assert answer.json() == {"cancel": False, "lease_seconds": service.settings.lease_seconds}
    (shown,) = service.job(job_id)["attempts"]
    assert (shown["step"], shown["steps"][0]["seconds"]) == ("build", 1.5)
    with service.context.database.session(writes=False) as session:
        assert session.scalar(select(Attempt.lease_expires_at)) > now() + timedelta(seconds=30)


def test_a_wrong_fencing_token_is_refused_everywhere(service, job_id, make_report):
    attempt = service.claim().json()["attempt"]
    for path, body in (*SAYINGS, ("report", report_body(attempt, report=make_report()))):
        answer = service.worker(f"/attempts/{attempt['id']}/{path}", {**body, "fencing_token": 2})
        assert (answer.status_code, answer.json()["error"]) == (409, "LeaseLost"), path
    assert (count(service, Report), count(service, LogChunk)) == (0, 0)


def test_log_lines_are_stored_once_and_in_order(service, job_id):
    attempt = service.claim().json()["attempt"]
    for sequence, text in ((1, "second\n"), (0, "first\n"), (1, "second\n"), (2, "nul \x00\n")):
        body = {"fencing_token": 1, "sequence": sequence, "text": text}
        assert service.worker(f"/attempts/{attempt['id']}/log", body).status_code == 204
    assert service.client.get(f"/api/v1/jobs/{job_id}/log").text == "first\nsecond\nnul �\n"


def test_a_report_is_stored_once_and_decided_once(service, job_id, make_report):
    attempt = service.claim().json()["attempt"]
    body = report_body(attempt, report=make_report(), manifests={"head": None, "base": None})
    for _ in range(3):
        answer = service.worker(f"/attempts/{attempt['id']}/report", body)
        assert (answer.status_code, answer.json()["accepted"]) == (200, True)
    assert service.job(job_id)["state"] == "deciding"
    service.work_off()
    assert count(service, Report) == 1
    assert service.job(job_id)["state"] == "finished"


def test_a_report_over_the_limit_is_refused_before_it_is_parsed(service, job_id, make_report):
    attempt = service.claim().json()["attempt"]
    service.app.state.settings = service.settings.model_copy(update={"max_report_bytes": 3000})
    path = f"/attempts/{attempt['id']}/report"
    body = report_body(attempt, report=make_report())
    chunks = iter([b"[" * 2000, b"[" * 2000])  # without a declared length, and no JSON either
    for answer in (
        service.worker(path, body),
        service.client.post(f"/api/v1/worker{path}", content=chunks, headers=service.worker_headers),
    ):
        assert answer.status_code == 413
        assert answer.json() == {
            "error": "PayloadTooLarge",
            "detail": "the body is larger than 3000 bytes (GPROJCI_MAX_REPORT_BYTES)",
        }
    assert service.client.post(f"/api/v1/worker{path}", json=body).status_code == 401
    assert service.client.post(f"/api/v1/worker{path}", json=body, headers=service.write_headers).status_code == 403
    assert count(service, Report) == 0
    refusal = {**body, "status": "runtime_error", "detail": answer.json()["detail"], "report": None}
    assert service.worker(path, refusal).json()["accepted"]
    assert service.job(job_id)["failure_kind"] == "runtime_error"


def test_a_malformed_report_is_refused_whole(service, job_id, make_report):
    attempt = service.claim().json()["attempt"]
    report = make_report()
    report["accuracy"]["summary"][0]["tensor"] = "dz"
    answer = service.worker(f"/attempts/{attempt['id']}/report", report_body(attempt, report=report))
    assert (answer.status_code, answer.json()["error"]) == (422, "ReportInvalid")
    assert "$.accuracy.summary[0].tensor" in answer.json()["detail"]
    assert count(service, Report) == 0
    assert service.job(job_id)["state"] == "running"


def test_a_lost_lease_gives_the_job_to_another_and_keeps_the_late_report_as_evidence(service, job_id, make_report):
    first = service.claim().json()["attempt"]
    expire(service, lease_expires_at=now() - timedelta(seconds=1))
    reap(service.context)
    assert service.job(job_id)["state"] == "queued"
    for path, body in SAYINGS:
        answer = service.worker(f"/attempts/{first['id']}/{path}", {**body, "fencing_token": 1})
        assert (answer.status_code, answer.json()["error"]) == (409, "LeaseLost"), path
    service.hello("host-2")
    second = service.claim("host-2").json()["attempt"]
    assert second["fencing_token"] == 2
    late = service.worker(f"/attempts/{first['id']}/report", report_body(first, report=make_report()))
    assert (late.status_code, late.json()["accepted"]) == (200, False)
    assert service.job(job_id)["state"] == "running"
    good = service.worker(f"/attempts/{second['id']}/report", report_body(second, report=make_report()))
    assert good.json()["accepted"]
    with service.context.database.session(writes=False) as session:
        assert session.execute(select(Report.attempt_id, Report.accepted).order_by(Report.id)).all() == [
            (first["id"], False),
            (second["id"], True),
        ]


def test_a_restarted_worker_frees_its_own_attempt_at_once(service, job_id):
    service.claim()
    service.hello(boot_id="first-boot")
    assert service.job(job_id)["state"] == "running", "the same start of the worker"
    service.hello(boot_id="second-boot")
    assert service.job(job_id)["state"] == "queued"


def test_a_job_whose_workers_all_vanish_ends_as_an_error(service, job_id):
    for _ in range(service.settings.max_attempts):
        assert service.claim().status_code == 200
        expire(service, lease_expires_at=now() - timedelta(seconds=1))
        reap(service.context)
    service.work_off()
    job = service.job(job_id)
    assert (job["state"], job["failure_kind"], job["verdict"]["verdict"]) == ("finished", "lost_worker", "error")


def test_the_hard_limit_holds_whatever_the_heartbeats_say(service, job_id):
    service.claim()
    expire(service, deadline_at=now() - timedelta(seconds=1))
    reap(service.context)
    service.work_off()
    job = service.job(job_id)
    assert (job["state"], job["failure_kind"], job["verdict"]["verdict"]) == ("finished", "timeout", "fail")


def test_a_clock_set_forward_takes_no_time_from_a_worker_that_is_heard_of(service, job_id):
    """It calls before the reaper comes: the lease has lapsed by then, and the hard limit has passed."""
    attempt = service.claim().json()["attempt"]
    jumped, left = timedelta(hours=2), timedelta(minutes=30)
    expire(service, lease_expires_at=now() - jumped, deadline_at=now() - jumped + left)
    service.worker(f"/attempts/{attempt['id']}/heartbeat", {"fencing_token": 1})
    reap(service.context)
    assert service.job(job_id)["state"] == "running"
    with service.context.database.session(writes=False) as session:
        deadline = session.scalar(select(Attempt.deadline_at))
    assert abs(deadline - (now() + left)) < timedelta(minutes=1)


def test_a_heartbeat_in_time_moves_no_hard_limit(service, job_id):
    attempt = service.claim().json()["attempt"]
    with service.context.database.session(writes=False) as session:
        before = session.scalar(select(Attempt.deadline_at))
    service.worker(f"/attempts/{attempt['id']}/heartbeat", {"fencing_token": 1})
    with service.context.database.session(writes=False) as session:
        assert session.scalar(select(Attempt.deadline_at)) == before


@pytest.mark.parametrize(
    ("status", "state", "verdict"), [("build_error", "finished", "fail"), ("checkout_error", "queued", None)]
)
def test_a_failure_is_a_result_and_a_passing_fault_is_tried_again(service, job_id, status, state, verdict):
    attempt = service.claim().json()["attempt"]
    body = {"fencing_token": 1, "status": status, "detail": "no such file: setup.py\nmore"}
    service.worker(f"/attempts/{attempt['id']}/report", body)
    service.work_off()
    job = service.job(job_id)
    assert job["state"] == state
    assert (job["verdict"] or {}).get("verdict") == verdict
    if verdict:
        assert job["verdict"]["summary"] == "build error: no such file: setup.py"


def test_a_cancelled_job_is_told_with_the_next_heartbeat(service, job_id, make_report):
    attempt = service.claim().json()["attempt"]
    service.client.post(f"/api/v1/jobs/{job_id}/cancel", json={"reason": "not needed"}, headers=service.write_headers)
    answer = service.worker(f"/attempts/{attempt['id']}/heartbeat", {"fencing_token": 1})
    assert answer.json()["cancel"] is True
    late = service.worker(f"/attempts/{attempt['id']}/report", report_body(attempt, report=make_report()))
    assert late.json()["accepted"] is False
    assert service.job(job_id)["state"] == "cancelled"
    again = service.client.post(f"/api/v1/jobs/{job_id}/rerun", headers=service.write_headers)
    assert (again.status_code, again.json()["retry_of_id"]) == (201, job_id)


def test_the_reaper_sends_lost_messages_again(service, push_payload, make_report):
    """Redis loses all its data at each step; every job still goes on."""

    def lose() -> None:
        with service.context.queue.celery.connection_for_write() as connection:
            connection.default_channel.client.flushall()

    service.context.settings.reaper_seconds = 1e-6
    service.deliver("push", push_payload())
    lose()
    reap(service.context)
    service.work_off()
    (job,) = service.jobs()
    lose()
    assert service.context.queue.length("measure.cpu") == 0
    reap(service.context)
    assert service.context.queue.length("measure.cpu") == 1
    reap(service.context)
    assert service.context.queue.length("measure.cpu") == 1, "a message that waits is not sent again"
    service.hello()
    attempt = service.claim().json()["attempt"]
    service.worker(f"/attempts/{attempt['id']}/report", report_body(attempt, report=make_report()))
    lose()
    reap(service.context)
    service.work_off()
    assert service.job(job["id"])["state"] == "finished"


def test_projects_take_turns_and_the_merge_queue_goes_first(service, push_payload):
    def push(number: int, project: int, name: str) -> None:
        there = {**push_payload()["repository"], "id": project, "full_name": name}
        service.deliver("push", push_payload(f"{number:02d}" * 20, repository=there))

    for number in range(10, 15):
        push(number, 42, "o/busy")
    for number in (20, 21):
        push(number, 43, "o/quiet")
    push(30, 44, "o/late")
    service.work_off()
    service.hello()
    order = [service.claim().json()["job"]["head_sha"][:2] for _ in range(4)]
    assert order == ["10", "20", "30", "11"]
    group = {"head_sha": "99" * 20, "head_ref": "refs/heads/gh-readonly-queue/main/pr-7-x", "base_sha": "b" * 40}
    group |= {"base_ref": "refs/heads/main", "head_commit": push_payload()["head_commit"]}
    busy = {**push_payload()["repository"], "full_name": "o/busy"}
    service.deliver("merge_group", {"action": "checks_requested", "repository": busy, "merge_group": group})
    service.work_off()
    oldest = service.jobs()[-1]["id"]
    order = [service.claim(job_id=oldest).json()["job"]["head_sha"][:2] for _ in range(5)]
    assert order == ["99", "21", "12", "13", "14"], "whatever a message says"
