"""Bisections over the API: the service searches by itself, on either database, with workers that report."""

from __future__ import annotations

import pytest

from gprojci_service.jobs.tasks import reap
from gprojci_service.models import GithubReport

METRIC = "forward_backward_seconds"
CASE = "1x4x1024x64.causal.bfloat16"


def sha(number: int) -> str:
    return f"{number:02d}" * 20


@pytest.fixture
def ask(service):
    """Starts a bisection of commits 1 to 8 against 0; returns how the API shows it, and what to change."""
    body = {"name": "o/r", "clone_url": "https://github.com/o/r.git"}
    assert service.client.post("/api/v1/projects", json=body, headers=service.write_headers).status_code == 201
    service.hello()

    def start(expected: int = 201, **changes):
        body = {"project": "o/r", "good": sha(0), "commits": [sha(i) for i in range(1, 9)], "metric": METRIC, **changes}
        answer = service.client.post("/api/v1/bisections", json=body, headers=service.write_headers)
        assert answer.status_code == expected, answer.text
        return answer.json()

    return start


def shown(service, bisection):
    answer = service.client.get(f"/api/v1/bisections/{bisection['id']}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def of_another_build(report):
    report["subjects"] = [{**subject, "build_key": subject["revision"]} for subject in report["subjects"]]
    return report


def test_it_finds_a_slowdown_past_a_commit_that_does_not_build_and_one_that_is_unsure(service, ask, make_report):
    started = ask()
    assert (started["state"], started["remaining_count"], started["threshold"]) == ("running", 8, None)

    def outcome(number: int, effort: int):
        if number == 5:
            return "build_error"
        if number == 6 and effort == 1:
            return of_another_build(make_report(time=(0.99, 1.2)))
        return make_report(time=(1.09, 1.11) if number >= 6 else (0.99, 1.01))

    assert service.measure(outcome) == [(8, 1), (4, 1), (6, 1), (6, 2), (5, 1)]
    found = shown(service, started)
    assert (found["state"], found["first_bad"]) == ("found", None)
    assert found["remaining"] == [sha(5), sha(6)], "5 cannot be built, so it may be the one"
    assert (found["backend"], found["case"], round(found["threshold"], 3)) == ("gproj", CASE, 1.049)
    words = {int(item["sha"][:2]): item["word"] for item in found["findings"]}
    assert words == {8: "bad", 4: "good", 6: "bad", 5: "skipped"}
    assert all(item["job_url"].endswith(f"/jobs/{item['job_id']}") for item in found["findings"])
    with service.context.database.session(writes=False) as session:
        assert session.query(GithubReport).count() == 0, "GitHub is told nothing of a search"


def test_it_finds_an_error_and_reuses_what_was_measured(service, ask, make_report):
    def outcome(number: int, _: int):
        return make_report(dq=0.05 if number >= 3 else 0.002, base_dq=0.002)

    first = ask(metric="dq_error")
    assert len(service.measure(outcome)) == 4
    assert shown(service, first)["first_bad"] == sha(3)
    again = ask(metric="dq_error", backend="gproj", case="late-keybias")
    assert (again["state"], again["first_bad"]) == ("found", sha(3)), "all of it is known: no job is made"
    assert {item["job_id"] for item in again["findings"]} == {
        item["job_id"] for item in shown(service, first)["findings"]
    }


def test_a_bad_commit_that_is_as_good_ends_it(service, ask, make_report):
    started = ask()
    service.measure(lambda *_: make_report(time=(0.99, 0.999)))
    found = shown(service, started)
    assert (found["state"], found["job_id"]) == ("not_worse", None)
    assert "nothing to find" in found["detail"]


def test_the_same_build_decides_what_times_cannot(service, ask, make_report):
    def outcome(number: int, _: int):
        if number >= 6:
            return of_another_build(make_report(time=(1.09, 1.11)))
        return make_report(time=(0.9, 1.2))  # head and base of one build

    started = ask()
    assert {effort for _, effort in service.measure(outcome)} == {1}
    assert shown(service, started)["first_bad"] == sha(6)


def test_a_fault_of_the_machinery_fails_it_and_a_cancelled_one_leaves_no_job(service, ask):
    started = ask()
    for _ in range(service.settings.max_attempts):
        service.measure(lambda *_: "checkout_error")
    found = shown(service, started)
    assert (found["state"], "checkout error" in found["detail"]) == ("failed", True)
    other = ask(metric="dq_error")
    path = f"/api/v1/bisections/{other['id']}/cancel"
    assert service.client.post(path, headers=service.write_headers).json()["state"] == "cancelled"
    assert service.client.post(path, headers=service.write_headers).status_code == 409
    assert service.job(other["job_id"])["state"] == "cancelled"


def test_what_cannot_be_searched_is_refused(service, ask):
    assert "use one of" in ask(422, metric="tflops")["detail"]
    assert "listed twice" in ask(422, commits=[sha(1), sha(1)])["detail"]
    assert "not measured on" in ask(422, hardware="h200")["detail"]
    assert service.client.post("/api/v1/bisections", json={}).status_code == 401


def test_a_lost_message_is_found_by_the_reaper(service, ask, make_report):
    started = ask()
    job = service.client.post(
        f"/api/v1/jobs/{started['job_id']}/cancel", json={"reason": "r"}, headers=service.write_headers
    )
    assert job.json()["state"] == "cancelled"
    service.work_off()
    assert shown(service, started)["state"] == "running"
    reap(service.context)
    service.work_off()
    assert shown(service, started)["state"] == "failed", "the bad commit's own job was cancelled by hand"
