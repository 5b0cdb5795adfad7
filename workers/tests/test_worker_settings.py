"""The worker's settings: the variable at fault is named, the device is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

GOOD = {
    "GPROJCI_SERVICE_URL": "http://127.0.0.1:9",
    "GPROJCI_WORKER_TOKEN": "t",
    "GPROJCI_BROKER_URL": "redis://127.0.0.1:9/0",
}


def worker(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **GOOD, **changes}
    environment = {name: value for name, value in environment.items() if value}
    command = [sys.executable, "-c", "from gprojci_workers.cli import main; main()", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_variable_is_named(name):
    done = worker(**{name: ""})
    assert (done.returncode, done.stderr) == (2, f"gprojci-worker: {name}: is not set\n")


def test_a_wrong_device_is_named():
    done = worker(GPROJCI_DEVICE="tpu")
    assert done.returncode == 2
    assert "GPROJCI_DEVICE" in done.stderr


def test_describe_tells_the_hardware_class():
    done = worker("--describe", GPROJCI_DEVICE="cpu")
    assert json.loads(done.stdout)["hardware"] == "cpu"


def test_torch_is_imported_in_no_process_of_the_worker():
    code = "import gprojci_workers.worker, gprojci_workers.cli, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={"PATH": os.environ["PATH"], **GOOD}, check=True, timeout=60)
