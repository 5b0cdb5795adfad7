"""One measurement a GPU: workers of a host take turns, and a dead one holds nobody up."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gprojci_workers import device_lock
from gprojci_workers.failure import AttemptCancelled, AttemptFailed

UUIDS = ["GPU-aaaa", "GPU-bbbb"]
HOLDER = """
import sys, time
from pathlib import Path
from gprojci_workers import device_lock
with device_lock.hold("cuda", Path(sys.argv[1]), seconds=1, log=print, should_stop=bool):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose nvidia-smi lists two GPUs; the directory of its locks."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n" + "".join(f"echo '{index}, {uuid}'\n" for index, uuid in enumerate(UUIDS)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    return tmp_path


def hold(host: Path, **changes):
    arguments = {"seconds": 0.0, "log": lambda _: None, "should_stop": bool, **changes}
    return device_lock.hold("cuda", host, **arguments)


@pytest.mark.parametrize(
    ("chosen", "found"), [(None, UUIDS), ("1", UUIDS[1:]), ("0,1", UUIDS), ("GPU-bbbb", UUIDS[1:]), ("", [])]
)
def test_the_gpus_are_those_that_cuda_sees(host, monkeypatch, chosen, found):
    if chosen is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert device_lock.visible_gpus() == found


def test_the_second_waits_until_the_first_is_done_or_dead(host, monkeypatch):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, host], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    said: list[str] = []
    with pytest.raises(AttemptFailed, match="GPU-bbbb was not free in time") as failed, hold(host, log=said.append):
        pass
    assert failed.value.kind == "lost_worker"
    assert said == ["GPU-bbbb: another worker measures on it; waiting\n"]
    with pytest.raises(AttemptCancelled), hold(host, seconds=60, should_stop=lambda: True):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with hold(host):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    threading.Timer(0.2, holder.kill).start()
    with hold(host, seconds=30):
        holder.wait(timeout=30)
    holder.stdout.close()


def test_a_cpu_has_no_lock_and_a_missing_directory_is_named(host):
    with device_lock.hold("cpu", host / "none", seconds=0, log=print, should_stop=bool):
        pass
    with pytest.raises(AttemptFailed, match="GPROJCI_LOCK_DIR"), hold(host / "none"):
        pass
