"""The sandbox: limits hold, nothing survives, no secrets, no network."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gprojci_workers import isolation, sandbox
from gprojci_workers.build import ruler_facts
from gprojci_workers.sandbox import Limits

RULER = tuple(Path(path) for path in ruler_facts(Path(sys.executable))["files"])
ROOMY = Limits(seconds=60, memory_bytes=4 * 2**30, output_bytes=10**6)


@pytest.fixture
def run(tmp_path):
    """Runs Python code in the sandbox; returns the result and its output."""

    def start(code, limits=ROOMY, network=False, should_stop=lambda: False, hidden=()):
        output: list[str] = []
        result = sandbox.run(
            [sys.executable, "-P", "-c", code],
            directory=tmp_path,
            limits=limits,
            network=network,
            files=isolation.Files(writable=(tmp_path,), readable=RULER, hidden=hidden),
            unsandboxed=True,
            on_output=output.append,
            should_stop=should_stop,
        )
        return result, "".join(output)

    return start


def test_output_and_exit_code_come_back(run):
    result, output = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (result.outcome, result.returncode, output) == ("exited", 3, "out\nerr\n")


@pytest.mark.parametrize(
    ("code", "limits", "outcome"),
    [
        ("import time; time.sleep(60)", Limits(1, 2**32, 10**6), "timeout"),
        ("x = bytearray(600_000_000); import time; time.sleep(60)", Limits(60, 300_000_000, 10**6), "out_of_memory"),
        ("while True: print('x' * 1000)", Limits(60, 2**32, 100_000), "output_limit"),
        (
            "import os, time; [os.fork() or time.sleep(60) for _ in range(30)]; time.sleep(60)",
            Limits(60, 2**32, 10**6, processes=20),
            "too_many_processes",
        ),
    ],
)
def test_limits_hold(run, code, limits, outcome):
    began = time.monotonic()
    result, _ = run(code, limits)
    assert result.outcome == outcome
    assert time.monotonic() - began < 30


FORKS = """
import os, time
shared = bytearray(b"x" * 150_000_000)
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        sum(shared[::4096])
        own = bytearray(b"y" * {own})
        time.sleep(4)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize(("own", "outcome"), [(1, "exited"), (120_000_000, "out_of_memory")])
def test_what_processes_share_counts_once(run, own, outcome):
    """Five processes of 150 MB stay below 450 MB where it is the same 150 MB in all of them."""
    assert run(FORKS.format(own=own), Limits(60, 450_000_000, 10**6))[0].outcome == outcome


def test_it_stops_when_it_is_to(run):
    assert run("import time; time.sleep(60)", should_stop=lambda: True)[0].outcome == "stopped"


def test_nothing_survives_it(run, namespaces, left_alive):
    """A child that left its session and its parent is ended with the rest."""
    mark = f"survivor-{os.getpid()}-{time.monotonic_ns()}"
    child = f"import time; time.sleep(300)  # {mark}"
    leave = f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)"
    run(f"import subprocess, sys; {leave}; print('left')")
    assert left_alive(mark) == []


@pytest.mark.parametrize("session", [False, True], ids=["in-its-group", "out-of-its-group"])
def test_where_the_operator_allows_no_namespaces_its_processes_end_all_the_same(run, monkeypatch, session, left_alive):
    """A child that outlives its parent by the group; one that has left the group while its parent is there."""
    monkeypatch.setattr(isolation, "_unshare", tuple)
    mark = f"survivor-{os.getpid()}-{time.monotonic_ns()}"
    child = f"import time; time.sleep(300)  # {mark}"
    leave = f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session={session}, stdout=-3)"
    began = time.monotonic()
    stay = "time.sleep(60)" if session else "sys.exit()"
    result, _ = run(
        f"import subprocess, sys, time; {leave}; {stay}", should_stop=lambda: time.monotonic() > began + 0.7
    )
    assert result.outcome == ("stopped" if session else "exited")
    assert left_alive(mark) == []


def test_no_secret_is_seen(run, monkeypatch):
    for name in ("GPROJCI_WORKER_TOKEN", "GPROJCI_BROKER_URL", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH"):
        monkeypatch.setenv(name, "a-secret")
    _, output = run("import os; print(dict(os.environ))")
    assert "a-secret" not in output
    assert "'GPROJCI_NETWORK'" in output


def test_there_is_no_network(run, namespaces):
    code = "import socket; s = socket.socket(); s.settimeout(5); s.connect(('127.0.0.1', 9))"
    result, output = run(code)
    assert (result.returncode, "Network is unreachable" in output) == (1, True)
    assert "isolated" in run("import os; print(os.environ['GPROJCI_NETWORK'])")[1]


@pytest.mark.parametrize("network", [True, False])
def test_hidden_paths_are_empty_and_stay_so(run, tmp_path, network, namespaces):
    secret, folder = tmp_path / "secret", tmp_path / "folder"
    secret.write_text("a-secret")
    folder.mkdir()
    (folder / "key").write_text("a-secret")
    code = f"""
import os, pathlib, subprocess
secret = pathlib.Path({str(secret)!r})
print(repr(secret.read_text()), os.listdir({str(folder)!r}))
subprocess.run(["umount", secret], capture_output=True)
print(repr(secret.read_text()))
"""
    _, output = run(code, network=network, hidden=(secret, folder, tmp_path / "absent"))
    assert output == "'' []\n''\n"
    assert secret.read_text() == "a-secret"


@pytest.mark.parametrize("network", [True, False])
def test_the_workers_own_processes_are_not_seen(run, network, namespaces):
    _, output = run(
        "import os; print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))", network=network
    )
    assert str(os.getpid()) not in output.strip("[]\n").split(", ")


def test_it_dies_with_its_parent(tmp_path):
    mark = f"orphan-{os.getpid()}-{time.monotonic_ns()}"
    code = f"import time; time.sleep(300)  # {mark}"
    parent = (
        "import sys; from pathlib import Path; from gprojci_workers import sandbox\n"
        f"sandbox.run([sys.executable, '-c', {code!r}], directory=Path({str(tmp_path)!r}), network=False,"
        " unsandboxed=True,"
        f" files=sandbox.Files(writable=(Path({str(tmp_path)!r}),), readable=(*map(Path, {[*map(str, RULER)]!r}),)),"
        " limits=sandbox.Limits(300, 2**32, 10**6), on_output=print, should_stop=lambda: False)"
    )

    def alive() -> list[psutil.Process]:
        found = [
            process
            for process in psutil.process_iter(["cmdline", "name"])
            if mark in " ".join(process.info["cmdline"] or [])
        ]
        return [process for process in found if process.pid != runner.pid]

    runner = subprocess.Popen([sys.executable, "-c", parent])
    while not alive():
        time.sleep(0.05)
        assert runner.poll() is None
    runner.kill()
    runner.wait()
    give_up = time.monotonic() + 10
    while alive() and time.monotonic() < give_up:
        time.sleep(0.1)
    assert alive() == []


def test_what_begins_after_its_parents_death_ends_at_once(tmp_path):
    marker = tmp_path / "ran"
    wrapped, _ = isolation.wrap(["touch", str(marker)], network=False, files=isolation.Files(writable=(tmp_path,)))
    another_parent = subprocess.run(
        ["sh", "-c", '"$@"; echo $?', "sh", *wrapped], capture_output=True, text=True, check=False
    )
    assert (another_parent.stdout, marker.exists()) == ("125\n", False)
    subprocess.run(wrapped, check=True)
    assert marker.exists()
