"""`gprojci-worker --doctor`: says what a measuring host lacks, and what to do about it."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from gprojci_workers import doctor
from gprojci_workers.cli import main

ENVIRONMENT = {
    "GPROJCI_SERVICE_URL": "http://127.0.0.1:9",
    "GPROJCI_WORKER_TOKEN": "t",
    "GPROJCI_BROKER_URL": "redis://127.0.0.1:9/0",
    "GPROJCI_DEVICE": "cpu",
}


def test_a_host_whose_service_and_broker_do_not_answer(tmp_path, namespaces):
    done = CliRunner(env={**ENVIRONMENT, "GPROJCI_CACHE_DIR": str(tmp_path / "cache")}).invoke(main, ["--doctor"])
    assert done.exit_code == 3
    words = done.output.split()
    assert words.count("WRONG") == 2
    for line in ("WRONG    service: http://127.0.0.1:9", "WRONG    broker: ", "ok       ruler: gprojci-suite"):
        assert line in done.output, done.output
    assert "→ GPROJCI_SERVICE_URL: is the address right" in done.output
    assert "ok       sandbox: namespaces: network, processes and files apart; torch computes on cpu" in done.output


@pytest.mark.parametrize(
    ("said", "outcome", "words"),
    [
        ("NVIDIA H200, 580.82, 9.0, Enabled", "ok", "NVIDIA H200, 580.82, 9.0"),
        ("NVIDIA H200, 580.82, 9.0, Disabled", "warning", "nvidia-smi -pm 1"),
        ("4711", "warning", "processes 4711 compute on it"),
    ],
)
def test_the_gpu_and_who_else_is_on_it(worker_settings, monkeypatch, said, outcome, words):
    settings = worker_settings.model_copy(update={"device": "cuda", "hardware": "h200"})
    answers = {"--query-gpu": said if "," in said else "NVIDIA H200, 580.82, 9.0, Enabled"}
    answers["--query-compute-apps"] = "" if "," in said else said
    monkeypatch.setattr(doctor, "_output", lambda command: answers[command[1].partition("=")[0]])
    check = doctor.device(settings)
    assert (check.outcome, words in f"{check.found} {check.to_do}") == (outcome, True), check


@pytest.mark.skipif(torch.cuda.is_available(), reason="has what it must miss")
def test_a_sandbox_in_which_torch_does_not_compute(worker_settings, namespaces):
    worker_settings.cache_dir.mkdir(parents=True, exist_ok=True)
    check = doctor.enclosed(worker_settings.model_copy(update={"device": "cuda"}))
    assert (check.outcome, check.found.startswith("torch does not compute on cuda in it: ")) == ("wrong", True), check
    assert "CUDA" in check.found or "NVIDIA" in check.found
    assert list(worker_settings.cache_dir.glob(".doctor-*")) == []


def test_directories_that_cannot_be_written(worker_settings, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    settings = worker_settings.model_copy(update={"cache_dir": blocked / "cache", "lock_dir": blocked})
    assert doctor.enclosed(settings).found.startswith("not tried: ")
    for check in (doctor.disk(settings), doctor.locks(settings)):
        assert check.outcome == "wrong"
        assert check.to_do.startswith(("GPROJCI_CACHE_DIR", "GPROJCI_LOCK_DIR"))
