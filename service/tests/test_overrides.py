"""Overrides: a broken limit is accepted for one commit, by name and reason, and shown wherever the verdict is."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from gprojci_service.gate import accepted, decision
from gprojci_service.gate.finding import Finding
from gprojci_service.models import GithubReport, Override

HEAD = "a" * 40
MANIFEST = """
[backends.gproj]
entry = "gproj:attention"
[gate]
dq_error_ceiling = 0.0035
dq_worst_ceiling = 0.0040
"""
BODY = {"project": "o/r", "head_sha": HEAD, "limit_key": "dq_error_ceiling", "reason": "needed for the | release @all"}


def measure(service, make_report, **report):
    """Claims the next job and measures it through to its verdict."""
    service.hello()
    claimed = service.claim().json()
    attempt = claimed["attempt"]
    body = {
        "fencing_token": attempt["fencing_token"],
        "status": "measured",
        "report": make_report(**report),
        "manifests": {"head": MANIFEST, "base": MANIFEST},
    }
    assert service.worker(f"/attempts/{attempt['id']}/report", body).json()["accepted"]
    service.work_off()
    return service.job(claimed["job"]["id"])


def pushed(service, push_payload, sha=HEAD):
    service.deliver("push", push_payload(sha))
    service.work_off()


def accept(service, **changes):
    return service.client.post("/api/v1/overrides", json={**BODY, **changes}, headers=service.write_headers)


def test_an_accepted_limit_no_longer_blocks_this_commit_and_the_next_one_again(service, push_payload, make_report):
    pushed(service, push_payload)
    job = measure(service, make_report, dq=0.0038)
    assert job["verdict"]["verdict"] == "fail"
    made = accept(service)
    assert (made.status_code, made.json()["author"], made.json()["source"]) == (201, "u", "api")
    service.work_off()
    verdict = service.job(job["id"])["verdict"]
    assert (verdict["verdict"], verdict["summary"]) == (
        "pass",
        "1 of 1 limits hold; dq_error_ceiling accepted by u: needed for the | release @all",
    )
    (row,) = [row for row in verdict["evidence"] if row["limit_key"] == "dq_error_ceiling"]
    assert (row["verdict"], row["required"]) == ("fail", False)
    assert row["accepted"] == "accepted by u: needed for the | release @all"
    with service.context.database.session(writes=False) as session:
        told = session.scalars(select(GithubReport).order_by(GithubReport.id.desc()).limit(2)).all()
    check, status = told
    assert (status.phase, status.payload["state"], check.payload["conclusion"]) == ("accepted-1", "success", "success")
    assert "accepted by u" in status.payload["description"]
    assert "**accepted by u: needed for the \\| release @\u200ball**" in check.payload["output"]["summary"]

    rerun = service.client.post(f"/api/v1/jobs/{job['id']}/rerun", headers=service.write_headers).json()
    again = measure(service, make_report, dq=0.0038)
    assert (again["id"], again["verdict"]["verdict"]) == (rerun["id"], "pass")
    pushed(service, push_payload, "c" * 40)
    assert measure(service, make_report, dq=0.0038)["verdict"]["verdict"] == "fail"
    listed = service.client.get("/api/v1/overrides", params={"project": "o/r", "head_sha": HEAD[:8]}).json()
    assert [(one["author"], one["reason"]) for one in listed] == [("u", BODY["reason"])]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_is_left_still_decides(service, push_payload, make_report):
    pushed(service, push_payload)
    job = measure(service, make_report, dq=0.02)
    assert accept(service, backend="gproj").status_code == 201
    verdict = service.job(job["id"])["verdict"]
    assert verdict["verdict"] == "fail"
    assert verdict["evidence"][0]["limit_key"] == "dq_worst_ceiling"
    assert accept(service, limit_key="dq_worst_ceiling").status_code == 201
    verdict = service.job(job["id"])["verdict"]
    assert verdict["verdict"] == "pass"
    assert len(verdict["summary"]) <= 140


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_cannot_be_accepted_is_refused_with_the_reason(service, push_payload, make_report):
    pushed(service, push_payload)
    before = accept(service)
    assert (before.status_code, before.json()["error"]) == (409, "NothingToAccept")
    measure(service, make_report, dq=0.0038)
    for changes, status, error, says in (
        ({"reason": " \n "}, 422, "OverrideReasonMissing", "say why"),
        ({"limit_key": "dk_error_ceiling"}, 409, "NothingToAccept", "gproj/dq_error_ceiling"),
        ({"backend": "other"}, 409, "NothingToAccept", "gproj/dq_error_ceiling"),
        ({"project": "o/x"}, 404, "ProjectNotFound", "o/x"),
    ):
        answer = accept(service, **changes)
        assert (answer.status_code, answer.json()["error"]) == (status, error)
        assert says in answer.json()["detail"]
    assert accept(service).status_code == 201
    twice = accept(service, reason="again")
    assert (twice.status_code, twice.json()["error"]) == (409, "AcceptedAlready")
    assert "by u: needed" in twice.json()["detail"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_nan_and_a_failed_build_are_never_accepted(service, push_payload, make_report):
    pushed(service, push_payload)
    service.hello()
    attempt = service.claim().json()["attempt"]
    failed = {"fencing_token": 1, "status": "build_error", "detail": "no such file"}
    service.worker(f"/attempts/{attempt['id']}/report", failed)
    service.work_off()
    answer = accept(service, limit_key="status")
    assert (answer.status_code, answer.json()["error"]) == (409, "NotAcceptable")
    override = Override(limit_key="nonfinite", backend="", author="ada", reason="r")
    made = decision.whole([Finding("nonfinite", "gproj", "fail", "NaN")])
    assert accepted.apply(made, [override]) == made


@pytest.mark.parametrize("length", [1, 60, 500])
def test_a_summary_is_never_longer_than_githubs_limit(length):
    findings = [
        Finding("dq_error_ceiling", "gproj", "fail", "m" * 200),
        Finding("dk_error_ceiling", "x", "fail", "k" * 200),
    ]
    override = Override(limit_key="dk_error_ceiling", backend="x", author="ada", reason="r" * length)
    made = accepted.apply(decision.whole(findings), [override])
    assert (made.verdict, len(made.summary) <= 140) == ("fail", True)
    assert "dk_error_ceiling accepted by ada" in made.summary
    assert made.summary.startswith("m" * 60)
