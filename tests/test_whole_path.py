"""Webhook → build → suites → database → gate → page, on PostgreSQL and Redis and on the embedded default."""

from __future__ import annotations

import time

import httpx
import pytest
import torch
from deployment import KERNEL, SLOW, WRONG
from safetensors.torch import save_file

from gprojci_workers import isolation

NAMESPACES = isolation.is_possible()


def test_a_good_push_passes_and_a_wrong_pull_request_fails(shared, kernel_repository):
    good = kernel_repository.commit(KERNEL + "# faster\n", "faster")
    assert shared.deliver("push", kernel_repository.push(good)).status_code == 202
    job = shared.finished(good)
    assert job["verdict"]["verdict"] == "pass", shared.logs()
    assert job["merge_base_sha"] == kernel_repository.first
    assert [step["status"] for step in job["attempts"][0]["steps"]] == ["ok"] * len(job["attempts"][0]["steps"])
    assert [step["name"] for step in job["attempts"][0]["steps"]] == ["fetch", "build", "run"]
    assert 0 < job["usage"]["measuring_share"] < 1

    kernel_repository.branch("topic")
    wrong = kernel_repository.commit(WRONG, "a little more")
    assert shared.deliver("pull_request", kernel_repository.pull_request(wrong, good)).status_code == 202
    job = shared.finished(wrong)
    assert job["verdict"]["verdict"] == "fail"
    assert "dQ error on synthetic:random?seq=64&heads=1 is 5" in job["verdict"]["summary"]
    assert job["merge_base_sha"] == good

    once_more = shared.deliver("merge_group", kernel_repository.merge_group(wrong, good))
    assert once_more.status_code == 202
    taken = shared.job_of(wrong, lambda job: job["kind"] == "merge_group" and job["state"] == "finished")
    assert (taken["taken_from_job"], taken["verdict"]["verdict"]) == (job["id"], "fail")
    assert [step["name"] for step in taken["attempts"][0]["steps"]] == ["fetch", "build"], "it is not measured again"

    report = shared.get(f"/jobs/{job['id']}/report")
    assert {(subject["revision"], subject["commit"]) for subject in report["subjects"]} == {
        ("head", wrong),
        ("base", good),
    }
    assert {entry["status"] for entry in report["backends"]} == {"ok"}
    assert report["environment"]["network"] == ("isolated" if NAMESPACES else "shared")
    series = shared.get("/projects/o/tiny/series")
    dq = next(entry for entry in series if (entry["backend"], entry["metric"]) == ("tiny", "dq_error"))
    samples = shared.get(f"/series/{dq['id']}/samples")
    assert {(sample["sha"], sample["revision"]) for sample in samples} >= {
        (wrong, "head"),
        (good, "base"),
        (good, "head"),
    }

    page = httpx.get(f"{shared.url}/jobs/{job['id']}").text
    for words in ("fail", "dQ", wrong[:8], "gprojci-suite"):
        assert words in page
    log = httpx.get(f"{shared.url}/api/v1/jobs/{job['id']}/log").text
    assert wrong in log


def test_a_killed_worker_ends_in_a_finished_job_with_one_report(running, kernel_repository):
    slow = kernel_repository.commit(SLOW, "slow to import")
    running.deliver("push", kernel_repository.push(slow))
    running.in_step(slow, "run")
    running.kill_worker()
    job = running.finished(slow)
    assert job["verdict"]["verdict"] == "pass"
    assert [attempt["state"] for attempt in job["attempts"]] == ["lost", "reported"]
    assert running.get(f"/jobs/{job['id']}/report")["subjects"][0]["commit"] == slow


@pytest.mark.parametrize("running", ["processes"], indirect=True)
def test_a_worker_that_is_stopped_hands_back_and_a_drained_one_takes_nothing(running, kernel_repository):
    sha = kernel_repository.commit(KERNEL + "# again\n", "is measured twice")
    running.deliver("push", kernel_repository.push(sha))
    running.in_step(sha, "run")
    running.stop("worker")
    job = running.job_of(sha, lambda job: job["state"] == "queued")
    assert [attempt["state"] for attempt in job["attempts"]] == ["returned"]
    name = running.get("/workers")[0]["name"]
    assert running.command("worker", "drain", name) == f"{name} gets no more work; it is idle now\n"
    running.start("worker")
    log = running.directory / "logs" / "worker.log"
    give_up = time.monotonic() + 60
    while "drained: it takes no more jobs" not in log.read_text() and time.monotonic() < give_up:
        time.sleep(0.1)
    assert running.job_of(sha, bool)["state"] == "queued", running.logs()
    running.command("worker", "resume", name)
    job = running.finished(sha)
    assert [attempt["state"] for attempt in job["attempts"]] == ["returned", "reported"]


def test_a_manifest_may_name_an_uploaded_input_set(shared, kernel_repository, tmp_path):
    kernel_repository.number, kernel_repository.name = 2, "o/captured"
    tensors = {f"L3.{part}": torch.randn(1, 1, 64, 64).bfloat16() for part in ("q", "k", "v", "do")}
    save_file(tensors, tmp_path / "run.safetensors", metadata={"step": "4000"})
    said = shared.command("inputs", "upload", str(tmp_path / "run.safetensors"), "--name", "mine")
    content_hash = said.split()[1].rstrip(",")
    manifest = kernel_repository.directory / "gprojci.toml"
    manifest.write_text(manifest.read_text().replace('"synthetic:random?seq=64&heads=1"', '"mine"'))
    good = kernel_repository.commit(KERNEL, "measures on a capture of ours")
    shared.deliver("push", kernel_repository.push(good))
    job = shared.finished(good)
    assert job["verdict"]["verdict"] == "pass", shared.logs()
    report = shared.get(f"/jobs/{job['id']}/report")
    used = {entry["input"]: entry for entry in report["inputs"]}
    assert used["mine"]["content_hash"] == content_hash
    assert used["mine"]["provenance"] == {"step": "4000"}
    assert {entry["slice"] for entry in report["accuracy"]["slices"] if entry["input"] == "mine"} == {"L3.b0.h0"}
    assert content_hash in httpx.get(f"{shared.url}/inputs").text

    manifest.write_text(manifest.read_text().replace('"mine"', '"yours"'))
    unknown = kernel_repository.commit(KERNEL, "names what nobody uploaded")
    shared.deliver("push", kernel_repository.push(unknown))
    job = shared.finished(unknown)
    assert job["failure_kind"] == "build_error"
    assert "gprojci inputs upload FILE --name yours" in job["verdict"]["summary"] + job["attempts"][0]["detail"]


def test_redelivery_makes_no_second_job_and_a_forged_one_none(running, kernel_repository):
    (kernel_repository.directory / "pyproject.toml").write_text("this is no TOML")
    soon_ended = kernel_repository.commit(KERNEL, "breaks the build")
    payload = kernel_repository.push(soon_ended)
    forged = running.deliver("push", payload, secret="another secret")
    assert forged.status_code == 401
    assert running.get("/jobs") == []
    assert running.get("/projects") == []
    for status in ("accepted", "duplicate", "duplicate"):
        running.job_of(soon_ended, bool) if status == "duplicate" else None
        assert running.deliver("push", payload, delivery="one").json()["status"] == status
    assert running.finished(soon_ended)["failure_kind"] == "build_error"
    assert len(running.get("/jobs")) == 1


def test_a_commit_that_cannot_be_built_is_a_result(shared, kernel_repository):
    kernel_repository.number, kernel_repository.name = 3, "o/broken"
    pyproject = kernel_repository.directory / "pyproject.toml"
    good = pyproject.read_text()
    pyproject.write_text("this is no TOML")
    broken = kernel_repository.commit(KERNEL, "breaks the build")
    shared.deliver("push", kernel_repository.push(broken))
    job = shared.finished(broken)
    assert (job["failure_kind"], job["verdict"]["verdict"]) == ("build_error", "fail")
    assert job["attempts"][0]["failure_kind"] == "build_error"
    assert len(job["attempts"]) == 1, "a failing kernel is a result, not tried again"

    pyproject.write_text(good)
    mended = kernel_repository.commit(KERNEL, "mends the build")
    shared.deliver("push", kernel_repository.push(mended))
    job = shared.finished(mended)
    assert job["verdict"]["verdict"] == "pass"
    log = httpx.get(f"{shared.url}/api/v1/jobs/{job['id']}/log").text
    assert "build_error: base" in log, "a base that cannot be built is left out, and named"
