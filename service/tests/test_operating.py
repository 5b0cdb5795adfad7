"""What operators do and see: drained workers, attempts handed back, measurements taken over, what a job cost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from gprojci_service.models import Attempt, GithubReport, Job, Report, Sample, now

MANIFEST = '[backends.gproj]\nentry = "gproj:attention"\n[gate]\ndq_error_ceiling = 0.0035\n'
FINGERPRINT = "1" * 64


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the queries that differ are tested with the attempts."""
    return sqlite_url


def push(service, push_payload, number: int) -> int:
    service.deliver("push", push_payload(f"{number:02d}" * 20))
    service.work_off()
    return service.jobs()[0]["id"]


def builds(head: str, base: str) -> list[dict[str, object]]:
    about = {"reused": True, "seconds": 0.1, "status": "ok"}
    return [{"revision": "head", "key": head, **about}, {"revision": "base", "key": base, **about}]


def report(service, attempt, keys, **changes):
    body = {"fencing_token": attempt["fencing_token"], "status": "measured", "fingerprint": FINGERPRINT}
    body |= {"manifests": {"head": MANIFEST, "base": MANIFEST}, "builds": builds(*keys), **changes}
    answer = service.worker(f"/attempts/{attempt['id']}/report", body)
    service.work_off()
    return answer


def known(service, attempt, fingerprint: str = FINGERPRINT):
    body = {"fencing_token": attempt["fencing_token"], "fingerprint": fingerprint}
    return service.worker(f"/attempts/{attempt['id']}/known", body).json()


def test_a_drained_worker_finishes_and_gets_nothing_more(service, push_payload, make_report):
    push(service, push_payload, 1)
    push(service, push_payload, 2)
    assert service.hello().json()["draining"] is False
    attempt = service.claim().json()["attempt"]
    drained = service.client.post("/api/v1/workers/host-1/drain", headers=service.write_headers).json()
    assert drained["draining_at"]
    assert service.claim().status_code == 204
    assert service.worker("/alive", {"worker": "host-1"}).json() == {"draining": True}
    assert service.hello(boot_id="first-boot").json()["draining"] is True, "also when it is started anew"
    assert report(service, attempt, ("a", "b"), report=make_report()).json()["accepted"]
    assert service.client.post("/api/v1/workers/host-1/resume", headers=service.write_headers).status_code == 200
    assert service.claim().status_code == 200
    nobody = service.client.post("/api/v1/workers/nobody/drain", headers=service.write_headers)
    assert (nobody.status_code, nobody.json()["error"]) == (404, "WorkerNotFound")
    assert service.client.post("/api/v1/workers/host-1/drain").status_code == 401


def test_an_attempt_that_is_handed_back_waits_again_and_does_not_count(service, push_payload):
    job_id = push(service, push_payload, 1)
    service.hello()
    for _ in range(service.settings.max_attempts + 1):
        attempt = service.claim().json()["attempt"]
        body = {"fencing_token": attempt["fencing_token"], "reason": "host-1 stops"}
        for _ in range(2):
            assert service.worker(f"/attempts/{attempt['id']}/return", body).status_code == 204
        assert service.job(job_id)["state"] == "queued"
    with service.context.queue.celery.connection_for_read() as connection:
        assert connection.default_channel.client.llen("measure.cpu") == service.settings.max_attempts + 2
    attempt = service.claim().json()["attempt"]
    body = {"fencing_token": attempt["fencing_token"], "status": "lost_worker", "detail": "disk full"}
    assert service.worker(f"/attempts/{attempt['id']}/report", body).json()["accepted"]
    job = service.job(job_id)
    assert (job["state"], job["attempts"][0]["state"], job["attempts"][0]["detail"]) == (
        "queued",
        "returned",
        "host-1 stops",
    )
    late = service.worker(f"/attempts/{attempt['id']}/return", {"fencing_token": 1, "reason": "x"})
    assert late.status_code == 409


def test_what_was_measured_before_is_taken_over(service, push_payload, make_report):
    first = push(service, push_payload, 1)
    service.hello()
    attempt = service.claim().json()["attempt"]
    assert known(service, attempt) == {"report_id": None, "job_id": None}
    report(service, attempt, ("new", "old"), report=make_report())

    merged = push(service, push_payload, 2)
    attempt = service.claim().json()["attempt"]
    assert known(service, attempt, "2" * 64)["report_id"] is None
    found = known(service, attempt)
    assert found["job_id"] == first
    wrong = report(service, attempt, ("new", "old"), same_as=found["report_id"], fingerprint="2" * 64)
    assert (wrong.status_code, wrong.json()["error"]) == (422, "ReportInvalid")
    both = report(service, attempt, ("new", "old"), same_as=found["report_id"], report=make_report())
    assert both.status_code == 422
    assert report(service, attempt, ("new", "old"), same_as=found["report_id"]).json()["accepted"]
    job = service.job(merged)
    assert (job["state"], job["verdict"]["verdict"], job["taken_from_job"]) == ("finished", "pass", first)
    assert service.client.get(f"/api/v1/jobs/{merged}/report").json() == make_report()
    with service.context.database.session(writes=False) as session:
        checked = session.scalars(
            select(GithubReport).where(
                GithubReport.job_id == merged, GithubReport.kind == "check_run", GithubReport.phase == "decided"
            )
        ).one()
    assert f"Not measured again: builds, settings and device are those of [job {first}]" in str(checked.payload)
    page = service.client.get(f"/jobs/{merged}").text
    assert f'<a href="/jobs/{first}">job {first}</a>' in page

    docs = push(service, push_payload, 3)
    attempt = service.claim().json()["attempt"]
    report(service, attempt, ("new", "new"), same_as=known(service, attempt)["report_id"])
    assert service.job(docs)["taken_from_job"] == first
    with service.context.database.session(writes=False) as session:
        of_report = (
            select(func.count()).select_from(Sample).join(Report).group_by(Report.job_id).order_by(Report.job_id)
        )
        counts = session.scalars(of_report).all()
    assert len(counts) == 2, "an unchanged kernel gets no point of its own"


def test_what_another_project_or_hardware_measured_is_neither_offered_nor_taken(service, push_payload, make_report):
    push(service, push_payload, 1)
    service.hello()
    report(service, service.claim().json()["attempt"], ("new", "old"), report=make_report())
    other = {**push_payload()["repository"], "id": 43, "full_name": "o/other"}
    service.deliver("push", push_payload("02" * 20, repository=other))
    service.work_off()
    of_other_project = service.claim().json()["attempt"]
    job_id = push(service, push_payload, 3)
    with service.context.database.session(writes=True) as session:
        session.execute(update(Job).where(Job.id == job_id).values(hardware="h200"))
    service.hello("gpu-host", hardware="h200")
    for attempt in (of_other_project, service.claim("gpu-host").json()["attempt"]):
        assert known(service, attempt)["report_id"] is None
        refused = report(service, attempt, ("new", "old"), same_as=1)
        assert (refused.status_code, refused.json()["error"]) == (422, "ReportInvalid")


def test_what_is_asked_for_by_hand_or_too_old_is_measured(service, push_payload, make_report):
    first = push(service, push_payload, 1)
    service.hello()
    report(service, service.claim().json()["attempt"], ("a", "b"), report=make_report())
    service.client.post(f"/api/v1/jobs/{first}/rerun", headers=service.write_headers)
    again = service.claim().json()["attempt"]
    assert known(service, again)["report_id"] is None
    report(service, again, ("a", "b"), report=make_report())
    with service.context.database.session(writes=True) as session:
        session.execute(update(Report).values(received_at=now() - timedelta(days=8)))
    push(service, push_payload, 2)
    assert known(service, service.claim().json()["attempt"])["report_id"] is None


def test_a_job_says_what_it_took_and_cost(service, push_payload, make_report):
    job_id = push(service, push_payload, 1)
    service.app.state.settings = service.settings.model_copy(update={"hour_prices": {"cpu": 3.6}})
    service.hello()
    attempt = service.claim().json()["attempt"]
    began = "2026-01-02T03:04:05Z"
    steps = [
        {"name": name, "started_at": began, "seconds": took, "status": "ok"}
        for name, took in (("build", 9), ("run", 75))
    ]
    report(service, attempt, ("a", "b"), report=make_report(), steps=steps)
    with service.context.database.session(writes=True) as session:
        row = session.scalars(select(Attempt)).one()
        row.started_at = row.finished_at - timedelta(seconds=100)
    took = service.job(job_id)["usage"]
    assert took == {
        "seconds": 100.0,
        "measuring_seconds": 75.0,
        "measuring_share": 0.75,
        "cost": pytest.approx(0.1),
        "currency": "USD",
    }
    assert "75% of it measuring" in service.client.get(f"/jobs/{job_id}").text
    assert "0.10 USD" in service.client.get(f"/jobs/{job_id}").text


def test_what_a_report_says_of_its_backends_work_is_the_measuring(service, push_payload, make_report):
    job_id = push(service, push_payload, 1)
    service.hello()
    told = make_report() | {"duration_seconds": 70.0, "working_seconds": 60.0}
    steps = [
        {"name": name, "started_at": "2026-01-02T03:04:05Z", "seconds": took, "status": "ok"}
        for name, took in (("build", 9), ("run", 75))
    ]
    report(service, service.claim().json()["attempt"], ("a", "b"), report=told, steps=steps)
    with service.context.database.session(writes=True) as session:
        row = session.scalars(select(Attempt)).one()
        row.started_at = row.finished_at - timedelta(seconds=100)
    took = service.job(job_id)["usage"]
    assert (took["seconds"], took["measuring_seconds"], took["measuring_share"]) == (100.0, 60.0, 0.6)
    assert "60% of it measuring" in service.client.get(f"/jobs/{job_id}").text
