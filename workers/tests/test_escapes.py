"""Attempts of code under test to get out of the sandbox, as a build and as a measurement: each of them fails."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gprojci_suite.contract.manifest import Build
from gprojci_workers import attempt, build, isolation, sandbox
from gprojci_workers.checkout import Repository
from gprojci_workers.failure import AttemptFailed

pytestmark = pytest.mark.usefixtures("namespaces")
LIMITS = sandbox.Limits(60, 2**32, 10**6)
SECRET = "a-secret-of-this-host"


class Host:
    """A worker's host with two projects in its cache; the code under test is the first project's."""

    def __init__(self, settings, scratch):
        self.settings = settings
        self.cache, self.scratch = settings.cache_dir, scratch
        self.own = self.cache / "builds" / "own" / "env"
        self.other = self.cache / "builds" / "other" / "env"
        for directory in (self.own, self.other, self.scratch, self.cache / "pip" / "other"):
            directory.mkdir(parents=True)
        (self.other / "kernel.py").write_text(SECRET)
        (self.cache / "pip" / "other" / "wheel").write_text(SECRET)

    def attempt(self, code, *, network):
        """What Python code prints; it runs as a build does where it has a network, else as a measurement."""
        own = (self.scratch, self.own) if network else (self.scratch,)
        output = []
        sandbox.run(
            [sys.executable, "-P", "-c", code],
            directory=self.scratch,
            limits=LIMITS,
            network=network,
            files=build.files_of(self.settings, writable=own, readable=(self.own,)),
            unsandboxed=False,
            on_output=output.append,
            should_stop=lambda: False,
        )
        return "".join(output)


@pytest.fixture
def host(worker_settings, tmp_path):
    """Its cache lies where a real one does: not in /tmp, which the sandbox empties anyway."""
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".gprojci-test-") as cache:
        worker_settings.cache_dir = Path(cache).resolve()
        yield Host(worker_settings, tmp_path / "scratch")


as_both = pytest.mark.parametrize("network", [True, False], ids=["build", "run"])


@as_both
def test_no_file_of_the_host_can_be_changed(host, network):
    """Among them the ruler's own code, accounts, what starts by itself, and the kernel's settings."""
    targets = [
        Path(isolation.__file__).parent / "planted.py",
        Path(sys.prefix) / "lib" / "planted.py",
        Path("/etc/cron.d/planted"),
        Path.home() / ".bashrc.planted",
        Path("/usr/local/bin/planted"),
        Path("/proc/sys/kernel/core_pattern"),
        Path("/proc/sys/vm/overcommit_memory"),
        Path("/proc/sysrq-trigger"),
        Path("/proc/irq/default_smp_affinity"),
        Path("/sys/kernel/planted"),
    ]
    code = f"""
for path in {[str(path) for path in targets]!r}:
    try:
        open(path, "a").close()
        print("wrote", path)
    except OSError as error:
        pass
print("tried")
"""
    try:
        assert host.attempt(code, network=network) == "tried\n"
        assert not any(path.exists() for path in targets if "planted" in path.name)
    finally:  # a sandbox with a hole is no reason to leave the host changed
        for path in targets:
            path.unlink(missing_ok=True) if "planted" in path.name else None


@as_both
def test_a_thread_can_name_itself(host, network):
    """As CUDA does, which cannot be initialised otherwise."""
    code = """
import threading
def name():
    path = f"/proc/self/task/{threading.get_native_id()}/comm"
    open(path, "w").write("cuda")
    print(open(path).read(), end="")
thread = threading.Thread(target=name)
thread.start()
thread.join()
"""
    assert host.attempt(code, network=network) == "cuda\n"


@as_both
def test_no_secret_of_the_host_can_be_read(host, network, tmp_path, monkeypatch):
    """The token's file, the worker's environment and memory, and what other programs left in /tmp and /run."""
    token = Path(tempfile.mkdtemp(dir=Path.home(), prefix=".gprojci-test-")) / "token"
    token.write_text(SECRET)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(SECRET)
    host.settings.hidden_paths = [token]
    monkeypatch.setenv("GPROJCI_WORKER_TOKEN", SECRET)
    code = f"""
import glob, os
found = repr(dict(os.environ))
places = ("/proc/[0-9]*/environ", "/proc/[0-9]*/root{token}", "/run/secrets/*")
for pattern in ({str(token)!r}, {str(elsewhere)!r}, *places):
    for path in glob.glob(pattern):
        try:
            found += open(path).read()
        except OSError:
            pass
print({SECRET!r} in found, len(found) > 100)
"""
    try:
        assert host.attempt(code, network=network) == "False True\n"
    finally:
        token.unlink()
        token.parent.rmdir()


@as_both
def test_the_cache_of_another_project_is_neither_seen_nor_changed(host, network):
    code = f"""
import os
from pathlib import Path
cache = Path({str(host.cache)!r})
print(sorted(str(path.relative_to(cache)) for path in cache.rglob("*")))
for name in ("builds/other/env/kernel.py", "builds/own/finished", "pip/other/wheel", "builds/own/env/mine"):
    try:
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text("poison")
    except OSError:
        pass
"""
    assert host.attempt(code, network=network) == "['builds', 'builds/own', 'builds/own/env']\n"
    assert (host.other / "kernel.py").read_text() == SECRET
    assert (host.cache / "pip" / "other" / "wheel").read_text() == SECRET
    assert not (host.own.parent / "finished").exists()  # the mark of a build that may be used again
    assert (host.own / "mine").exists() == network  # a build writes its own environment, a measurement none


def test_a_build_and_a_measurement_are_given_what_is_their_projects_and_no_more(
    origin, kernel, host, tmp_path, monkeypatch
):
    """What outlives an attempt (downloads of pip, compiled kernels) has a directory for each project."""
    given = []

    def note(command, *, files, **_):
        given.append(files)
        Path(command[-1]).write_text("{}") if command[-1].endswith("report.json") else None
        return sandbox.Result("exited", 0, "done")

    monkeypatch.setattr(sandbox, "run", note)
    host.settings.private_repositories = True
    for name in sandbox.COMPILED:
        monkeypatch.setenv(name, str(tmp_path / name))
    project = {"clone_url": origin.url, "clone_token": None}
    claimed = {"attempt": {"id": 1, "hard_limit_seconds": 60}, "job": {}, "project": project}
    lifeline = SimpleNamespace(log=str, should_stop=bool)
    one = attempt.Attempt(host.settings, None, claimed, lifeline, host.scratch)
    sha = origin.commit(kernel())
    one.repository.fetch(sha, None, None)
    built = one._build_one("head", SimpleNamespace(sha=sha), SimpleNamespace(build=Build()))
    one.run(SimpleNamespace(dumps=str, subjects=[built]))
    key = one.repository.key
    own = [
        {host.scratch, built.site, host.cache / "pip" / key},
        {host.scratch, *(tmp_path / name / key for name in sandbox.COMPILED)},
    ]
    assert [set(files.writable) for files in given] == own
    seen = [{path for path in files.readable if path.is_relative_to(host.cache)} for files in given]
    assert seen == [{one.repository.directory}, {built.site}]
    assert all(host.cache in files.private for files in given)


def test_equal_code_of_another_project_is_not_its_build(origin, kernel, worker_settings, tmp_path, monkeypatch):
    """What a build makes of a directory depends on what lies beside it, which the other project chooses."""
    monkeypatch.setattr(build, "_install", lambda *_: "installed")
    sha = origin.commit(kernel())
    keys = []
    for url in (origin.url, origin.url + "/"):
        repository = Repository(worker_settings.cache_dir, url, None, private_network=True)
        repository.fetch(sha, None, None)
        made = build.build(
            worker_settings,
            repository,
            revision="head",
            sha=sha,
            recipe=Build(),
            scratch=tmp_path / "scratch",
            on_output=str,
            should_stop=lambda: False,
        )
        keys.append((made.key, made.reused))
    assert keys[0][0] != keys[1][0]
    assert [reused for _, reused in keys] == [False, False]


def test_no_network_and_no_socket_of_the_host_is_reached(host):
    """Nor memory that processes share by a number."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))) / "s"
        named.bind(str(place))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0gprojci-{os.getpid()}")
        for one in (named, abstract):
            one.listen()
        memory = ctypes.CDLL(None).shmget(os.getpid(), 4096, 0o1666)  # of System V: IPC_CREAT, for everybody
        stack.callback(ctypes.CDLL(None).shmctl, memory, 0, None)
        code = f"""
import ctypes, socket
if ctypes.CDLL(None).shmget({os.getpid()}, 0, 0) != -1:
    print("reached the host's shared memory")
for family, address in (
    (socket.AF_INET, ("127.0.0.1", {listening.getsockname()[1]})),
    (socket.AF_INET, ("192.0.2.1", 80)),
    (socket.AF_UNIX, {str(place)!r}),
    (socket.AF_UNIX, "\\0gprojci-{os.getpid()}"),
):
    try:
        with socket.socket(family) as s:
            s.settimeout(3)
            s.connect(address)
            print("reached", address)
    except OSError:
        pass
print("tried")
"""
        assert host.attempt(code, network=False) == "tried\n"


@as_both
def test_the_hosts_processes_are_neither_seen_nor_signalled(host, network):
    code = f"""
import os, signal
seen = [name for name in os.listdir("/proc") if name.isdigit()]
for pid in ({os.getpid()}, {os.getppid()}):
    if str(pid) not in seen:
        try:
            os.kill(pid, 0)
            print("reached", pid)
        except OSError:
            pass
print(len(seen) < 6)
"""
    assert host.attempt(code, network=network) == "True\n"


@as_both
def test_the_mounts_cannot_be_undone(host, network):
    """No capability is there, and none can be had from a program that gives some."""
    code = """
import re, subprocess
status = re.findall("(?:CapEff|CapBnd|NoNewPrivs):\\\\s*([0-9a-f]+)", open("/proc/self/status").read())
if [int(value, 16) for value in status] != [0, 0, 1]:
    print("has", status)
for command in (
    "mount -o remount,bind,rw /", "umount /tmp", "umount -l /dev", "mount -t proc proc /proc",
    "unshare --user --map-root-user --mount mount -o remount,bind,rw /",
    "unshare --user --mount --pid --fork sh -c 'mount -o remount,bind,rw / || umount /tmp'", "mknod /dev/disk b 8 0",
    "nsenter --target 1 --mount --pid sh -c 'umount /tmp'", "chroot / sh -c 'mount -o remount,bind,rw /'",
):
    done = subprocess.run(["sh", "-c", command], capture_output=True)
    if done.returncode == 0:
        print("done", command)
print("tried")
"""
    assert host.attempt(code, network=network) == "tried\n"


def test_devices_are_those_of_every_program_and_gpus(host):
    code = "from pathlib import Path; print([(path.is_block_device(), path) for path in Path('/dev').iterdir()])"
    found = host.attempt(code, network=False)
    assert "True" not in found
    assert "/dev/null" in found
    assert not any(name in found for name in ("mem'", "kmsg", "sda", "vda", "loop", "kvm", "fuse"))


@as_both
def test_nothing_stays_behind(host, network, left_alive):
    """Neither processes, also such as have left their session, nor files in the host's shared directories."""
    mark = f"survivor-{os.getpid()}-{time.monotonic_ns()}"
    sleeper = f"import time; time.sleep(300)  # {mark}"
    code = f"""
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    subprocess.Popen([sys.executable, "-c", {sleeper!r}], start_new_session=True)
    os._exit(0)
for place in ("/tmp", "/dev/shm", "/run", "/var/tmp"):
    open(place + "/{mark}", "w").write("left")
"""
    host.attempt(code, network=network)
    assert left_alive(mark) == []
    assert not any((Path(place) / mark).exists() for place in ("/tmp", "/dev/shm", "/run", "/var/tmp"))


def test_a_file_may_not_grow_without_end(host, monkeypatch):
    monkeypatch.setattr(isolation, "FILE_BYTES", 1_000_000)
    code = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); open('big', 'wb').write(bytes(2_000_000))"
    assert "File too large" in host.attempt(code, network=False)
    assert (host.scratch / "big").stat().st_size <= 1_000_000


def test_where_there_is_no_sandbox_nothing_runs(host, monkeypatch):
    monkeypatch.setattr(isolation, "_unshare", tuple)
    with pytest.raises(AttemptFailed, match="GPROJCI_ALLOW_UNSANDBOXED") as refused:
        host.attempt("open('ran', 'w')", network=False)
    assert refused.value.kind == "lost_worker"
    assert not (host.scratch / "ran").exists()


def _a_link(file, tmp_path):
    (tmp_path / "secret.json").write_text(json.dumps({"token": SECRET}))
    file.symlink_to(tmp_path / "secret.json")


REPORTS = {
    "link": (_a_link, "cannot be read"),
    "pipe": (lambda file, _: os.mkfifo(file), "not a regular file"),
    "folder": (lambda file, _: file.mkdir(), "cannot be read"),
    "long": (lambda file, _: file.write_bytes(b" " * 2000), "longer than"),
    "deep": (lambda file, _: file.write_text("[" * 500 + "]" * 499), "not JSON"),
    "list": (lambda file, _: file.write_text("[]"), "not a JSON object"),
}


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_that_is_none_is_refused(kind, tmp_path, monkeypatch):
    """A link would hand the service what the worker may read, a pipe hold the worker for ever."""
    make, says = REPORTS[kind]
    monkeypatch.setattr(attempt, "REPORT_BYTES", 1000)
    file = tmp_path / "report.json"
    make(file, tmp_path)
    with pytest.raises(AttemptFailed, match=says) as refused:
        attempt.read_report(file)
    assert refused.value.kind == "runtime_error"
    assert SECRET not in refused.value.detail
