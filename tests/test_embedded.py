"""`gprojci serve`: stops whole, recovers after kill -9, guards its directory and port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time

import deployment
import httpx
import psutil
import pytest
from deployment import BIN, KERNEL, SLOW

from gprojci_service.serve import Embedded


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A running one for the tests that only look, from outside or from within a job."""
    with deployment.Embedded(tmp_path_factory.mktemp("undisturbed") / "service") as service:
        yield service


def survivors(processes: list[psutil.Process]) -> list[str]:
    """Those that have not ended, given a little time."""
    _, alive = psutil.wait_procs(processes, timeout=10)
    return [" ".join(process.cmdline()) for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_everything_stops_with_it(embedded, how):
    with embedded() as service:
        give_up = time.monotonic() + 30
        while len(service.family()) < 6 and time.monotonic() < give_up:
            time.sleep(0.1)
        family = service.family()
        assert len(family) >= 6, "redis, web, tasks with its pool, the worker with its"
        assert service.stop(how) == 0
        assert survivors(family) == []


def test_it_recovers_after_kill_9(embedded, kernel_repository):
    sha = kernel_repository.commit(SLOW, "slow to import")
    with embedded() as service:
        service.deliver("push", kernel_repository.push(sha))
        service.in_step(sha, "run")
        family = service.family()
        service.stop(signal.SIGKILL)
        assert survivors(family) == [], "its parts die with the supervisor"
    with embedded() as service:
        job = service.finished(sha)
        assert (job["verdict"]["verdict"], [attempt["state"] for attempt in job["attempts"]]) == (
            "pass",
            ["lost", "reported"],
        )


def test_a_part_that_dies_is_started_again(embedded, kernel_repository):
    with embedded() as service:
        for name in ("redis", "celery", "uvicorn"):
            next(process for process in service.family() if name in " ".join(process.cmdline())).kill()
            time.sleep(1)
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            try:
                if service.deliver("push", kernel_repository.push(kernel_repository.first)).status_code == 202:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        assert service.finished(kernel_repository.first)["verdict"]["verdict"] == "pass"


def test_a_directory_and_a_port_have_one_owner(undisturbed, tmp_path):
    port = undisturbed.url.rpartition(":")[2]
    for directory, message in ((undisturbed.directory, "is in use by another"), (tmp_path / "other", f"port {port}")):
        command = [str(BIN / "gprojci"), "serve", "--data-dir", str(directory), "--port", port]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env={"PATH": os.environ["PATH"]}
        )
        assert done.returncode == 2
        assert message in done.stderr


def test_secrets_are_readable_by_the_owner_alone(undisturbed):
    for name in ("webhook-secret", "token"):
        assert (undisturbed.directory / name).stat().st_mode & 0o077 == 0


def test_code_under_test_sees_no_secret(undisturbed, kernel_repository, namespaces):
    """A kernel that prints what it finds in the data directory finds nothing."""
    service = undisturbed
    names = ["token", "webhook-secret", "gprojci.sqlite", "logs/web.log"]
    look = f"""
import os, pathlib
for name in {names!r}:
    path = pathlib.Path({str(service.directory)!r}) / name
    try:
        text = path.read_bytes()
    except OSError as error:
        text = type(error).__name__.encode()
    print("SEEN", name, text[:40])
print("SEEN environ", [name for name in os.environ if "TOKEN" in name or "SECRET" in name or "URL" in name])
raise ImportError(os.popen("cat /proc/*/environ | tr '\\0' '\\n' | grep -c GPROJCI_WORKER_TOKEN").read())
"""
    sha = kernel_repository.commit(look + KERNEL, "looks around")
    service.deliver("push", kernel_repository.push(sha))
    job = service.finished(sha)
    log = httpx.get(f"{service.url}/api/v1/jobs/{job['id']}/log").text + json.dumps(
        service.get(f"/jobs/{job['id']}/report")
    )
    for name in names:  # covered by nothing where it is hidden by name, else out of sight with its directory
        assert any(f"SEEN {name} {found}" in log for found in ("b''", "b'FileNotFoundError'")), log
    assert "SEEN environ []" in log
    assert service.secret not in log


def test_nothing_listens_beyond_loopback(undisturbed):
    listening = [
        connection.laddr.ip
        for process in undisturbed.family()
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {"127.0.0.1"}
    with socket.create_connection(("127.0.0.1", int(undisturbed.url.rpartition(":")[2])), timeout=5):
        pass


def test_the_apps_key_is_hidden_from_the_code_under_test(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    service = Embedded(tmp_path, "127.0.0.1", 1, with_worker=False)
    without = json.loads(service._environment(tmp_path)["GPROJCI_HIDDEN_PATHS"])
    monkeypatch.setenv("GPROJCI_GITHUB_APP_KEY_FILE", "app.pem")
    hidden = json.loads(service._environment(tmp_path)["GPROJCI_HIDDEN_PATHS"])
    assert hidden == [*without, str(tmp_path / "app.pem")]
