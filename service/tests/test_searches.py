"""Backfills, schedules, the order of claiming, and the removal of a project."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from gprojci_service.errors import InvalidRequest
from gprojci_service.models import InputFile, Job, Project, Schedule, now
from gprojci_service.queue import RUN_SCHEDULES
from gprojci_service.schedules.timetable import next_run
from gprojci_service.tasks import TASKS


def sha(number: int) -> str:
    return f"{number:02d}" * 20


@pytest.fixture
def api(service):
    """Calls the API with the right to write, about a project that is there."""

    def call(method: str, path: str, expected: int = 200, **request):
        answer = service.client.request(method, f"/api/v1{path}", headers=service.write_headers, **request)
        assert answer.status_code == expected, answer.text
        return answer.json() if answer.content else None

    call("POST", "/projects", 201, json={"name": "o/r", "clone_url": "https://github.com/o/r.git"})
    service.hello()
    return call


def test_a_backfill_takes_every_nth_and_lets_pushes_go_first(service, api, push_payload):
    body = {"project": "o/r", "commits": [sha(i) for i in range(1, 12)], "every": 5}
    made = api("POST", "/jobs/backfill", 201, json=body)
    assert (made["selected"], made["measured"]) == ([sha(1), sha(6), sha(11)], [])
    jobs = {job["head_sha"]: job for job in service.jobs()}
    assert [jobs[head]["base_sha"] for head in made["selected"]] == [None, sha(1), sha(6)]
    again = api("POST", "/jobs/backfill", 201, json={**body, "every": 1})
    assert (len(again["created"]), again["measured"]) == (8, [sha(1), sha(6), sha(11)])
    service.deliver("push", push_payload("f" * 40))
    service.work_off()
    told = service.claim(job_id=made["created"][0]).json()
    assert told["job"]["head_sha"] == "f" * 40, "whoever is told of a backfill takes what somebody waits for"
    assert service.claim(job_id=made["created"][2]).json()["job"]["id"] == made["created"][0], "the oldest first"
    assert service.claim().json()["job"]["id"] == made["created"][1]


def test_what_was_measured_under_this_ruler_is_not_backfilled_again(service, api, make_report):
    body = {"project": "o/r", "commits": [sha(2), sha(3)]}
    api("POST", "/jobs/backfill", 201, json=body)
    service.measure(lambda *_: make_report())
    assert api("POST", "/jobs/backfill", 201, json=body)["created"] == []
    newer = make_report(ruler={"version": "0.2.0", "revision": "9" * 40})
    api("POST", "/jobs", 201, json={"project": "o/r", "head_sha": sha(3)})
    service.measure(lambda *_: newer)
    assert len(api("POST", "/jobs/backfill", 201, json=body)["created"]) == 1, "a new ruler begins new series"


def test_a_schedule_measures_the_newest_head_each_time_it_is_due(service, api, push_payload):
    put = api("PUT", "/projects/o/r/schedule", json={"cron": "0 2 * * *"})
    assert datetime.fromisoformat(put["next_run_at"]).hour == 2
    run = TASKS[RUN_SCHEDULES]
    run(service.context)
    assert service.jobs() == [], "it is not due"

    def due() -> None:
        with service.context.database.session(writes=True) as session:
            session.execute(update(Schedule).values(next_run_at=now() - timedelta(minutes=1)))
        run(service.context)

    due()
    assert "no push has told" in api("GET", "/projects/o/r/schedule")["last_outcome"]
    with service.context.database.session(writes=True) as session:
        session.execute(update(Project).values(github_id=42))
    service.deliver("push", push_payload("e" * 40))
    service.work_off()
    service.claim()
    due()
    run(service.context)
    (scheduled, _) = service.jobs()
    assert (scheduled["kind"], scheduled["head_sha"], scheduled["ref"]) == ("schedule", "e" * 40, "main")
    due()
    assert len(service.jobs()) == 2
    assert f"job {scheduled['id']} of the run before" in api("GET", "/schedules")[0]["last_outcome"]
    api("POST", f"/jobs/{scheduled['id']}/cancel", json={"reason": "r"})
    due()
    assert len(service.jobs()) == 3, "the same head is measured anew"
    api("DELETE", "/projects/o/r/schedule", 204)
    assert api("GET", "/projects/o/r/schedule", 404)["error"] == "ScheduleNotFound"
    assert "cron" in api("PUT", "/projects/o/r/schedule", 422, json={"cron": "whenever"})["detail"]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [("0 2 * * *", (12, 1, 2, 0)), ("*/15 * * * 1-5", (11, 30, 23, 45)), ("30 4 1,15 * *", (12, 1, 4, 30))],
)
def test_cron_is_read_in_utc(cron, expected):
    moment = datetime(2026, 11, 30, 23, 30, 15, tzinfo=UTC)
    found = next_run(cron, moment.astimezone())
    assert (found.month, found.day, found.hour, found.minute) == expected


@pytest.mark.parametrize("cron", ["", "@daily", "61 * * * *", "0 2 * *", "0 0 31 2 *", "a b c d e"])
def test_what_is_no_cron_is_refused(cron):
    with pytest.raises(InvalidRequest, match="UTC"):
        next_run(cron, datetime(2026, 11, 30, tzinfo=UTC))


def test_a_removed_project_takes_everything_of_its_own_along_and_nothing_else(service, api, make_report, push_payload):
    api("POST", "/projects", 201, json={"name": "o/other", "clone_url": "https://github.com/o/other.git"})
    api("POST", "/jobs", 201, json={"project": "o/other", "head_sha": sha(1)})
    api("POST", "/jobs", 201, json={"project": "o/r", "head_sha": sha(3)})
    service.measure(lambda *_: make_report())
    api("PUT", "/projects/o/r/schedule", json={"cron": "0 2 * * *"})
    search = {"project": "o/r", "good": sha(1), "commits": [sha(2)], "metric": "dq_error"}
    api("POST", "/bisections", 201, json=search)
    with service.context.database.session(writes=True) as session:
        project = session.scalars(select(Project).where(Project.name == "o/r")).one()
        session.add(
            InputFile(name="n", content_hash="h", size_bytes=1, description={}, project_id=project.id, uploaded_by="u")
        )
    before = api("GET", "/projects/o/other/contents")["rows"]
    attempt = service.claim().json()["attempt"]
    assert api("DELETE", "/projects/o/r", 409)["error"] == "ProjectBusy"
    body = {"fencing_token": attempt["fencing_token"], "status": "runtime_error", "detail": "x"}
    service.worker(f"/attempts/{attempt['id']}/report", body)
    service.work_off()
    rows = api("GET", "/projects/o/r/contents")["rows"]
    assert {"job", "report", "sample", "series", "verdict", "bisection", "schedule", "github_report"} <= set(rows)
    assert api("DELETE", "/projects/o/r")["rows"] == rows
    assert api("GET", "/projects/o/r", 404)["error"] == "ProjectNotFound"
    assert api("GET", "/projects/o/other/contents")["rows"] == before
    with service.context.database.session(writes=False) as session:
        assert [job.project_id for job in session.scalars(select(Job))] == [session.scalars(select(Project)).one().id]
        assert session.scalars(select(InputFile)).one().project_id is None, "an upload may be used by every project"
