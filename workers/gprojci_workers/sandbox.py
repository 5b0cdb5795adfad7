"""Runs foreign code: without secrets, without network for measurements, and with limits on time, memory and output.

It has a process list, files (see `isolation.Files`) and, for a measurement, a network of its own, and nothing of it
survives. Where this host cannot give that nothing is run, unless the operator allows it: then the process group is
killed instead, the environment is still scrubbed, and the report says `network: shared`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from gprojci_workers import isolation
from gprojci_workers.failure import AttemptFailed
from gprojci_workers.isolation import Files

# What a kernel may need to find its compiler, its GPU and its libraries. Everything else, all secrets with it, is gone.
PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "TORCH_CUDA_ARCH_LIST",
    "GPROJCI_FA3_LIBRARY",
    "GPROJCI_FA3_CUDART",
    "MAX_JOBS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
COMPILED = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Directories of compiled kernels that outlive an attempt, with one for each project in them: what one wrote there
another would run."""
PIP_PASSED_ON = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_CONFIG_FILE",
    "PIP_CERT",
    "PIP_NO_INDEX",
)

Outcome = Literal["exited", "timeout", "out_of_memory", "output_limit", "too_many_processes", "stopped"]


@dataclass(frozen=True)
class Limits:
    """What a process and its children may use together."""

    seconds: float
    memory_bytes: int
    output_bytes: int
    processes: int = isolation.PROCESSES


@dataclass(frozen=True)
class Result:
    """How it ended: exited by itself (see `returncode`), or killed for passing a limit or because it was to stop."""

    outcome: Outcome
    returncode: int
    tail: str
    """The last 8,000 characters of its output."""


def run(
    command: list[str],
    *,
    directory: Path,
    limits: Limits,
    network: bool,
    files: Files,
    unsandboxed: bool,
    on_output: Callable[[str], None],
    should_stop: Callable[[], bool],
    environment: dict[str, str] | None = None,
) -> Result:
    """Runs a command to its end or to a limit, handing on its output (stdout and stderr together) as it comes.

    Args:
        directory: its working, home and temporary directory; must exist, and be writable.
        network: whether it may use the network (a build that must download; never a measurement).
        files: what it finds of the host's files. What the variables of the host name, it may read too.
        unsandboxed: whether it may run where this host can give no namespaces.
        environment: variables beside those every sandboxed process gets.

    Raises:
        AttemptFailed: `lost_worker`: this host can give no namespaces.
    """
    names = (*PASSED_ON, *PIP_PASSED_ON) if network else PASSED_ON
    variables = {name: os.environ[name] for name in names if name in os.environ}
    named = tuple(Path(part) for value in variables.values() for part in value.split(":") if part.startswith("/"))
    wrapped, apart = isolation.wrap(command, network=network, files=replace(files, readable=(*files.readable, *named)))
    if not apart and not unsandboxed:
        raise AttemptFailed("lost_worker", isolation.REFUSAL)
    variables |= {"HOME": str(directory), "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1", "PYTHONNOUSERSITE": "1"}
    variables |= {"GPROJCI_NETWORK": "isolated" if apart and not network else "shared", **(environment or {})}
    process = subprocess.Popen(
        wrapped,
        cwd=directory,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return _watch(process, limits, on_output, should_stop)
    finally:
        kill_tree(process)


def _watch(
    process: subprocess.Popen[bytes], limits: Limits, on_output: Callable[[str], None], should_stop: Callable[[], bool]
) -> Result:
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    deadline, printed, tail, next_look = time.monotonic() + limits.seconds, 0, "", 0.0
    outcome: Outcome = "exited"
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            chunk = process.stdout.read(65536) if selector.select(timeout=0.25) else None
            if chunk:
                printed += len(chunk)
                text = chunk.decode("utf-8", "replace")
                tail = (tail + text)[-8000:]
                on_output(text)
            elif chunk == b"" or process.poll() is not None:
                break
            if time.monotonic() > deadline:
                outcome = "timeout"
            elif printed > limits.output_bytes:
                outcome = "output_limit"
            elif should_stop():
                outcome = "stopped"
            elif time.monotonic() > next_look:
                next_look = time.monotonic() + 0.5
                if len(_family(process.pid)) > limits.processes:
                    outcome = "too_many_processes"
                elif _takes_more(process.pid, limits.memory_bytes):
                    outcome = "out_of_memory"
            if outcome != "exited":
                break
    if outcome != "exited":
        kill_tree(process)
    return Result(outcome, process.wait(timeout=30), tail)


def _takes_more(pid: int, limit: int) -> bool:
    """Whether a process and its descendants take more memory than they may, what they share counted once.

    Resident bytes count a shared page in every process that maps it, and a measurement on a GPU has dozens with the
    same libraries. Where they suggest too much, proportional bytes decide, which take longer to read.
    """
    return _memory(pid, proportional=False) > limit and _memory(pid, proportional=True) > limit


def _family(pid: int) -> list[psutil.Process]:
    """A process and its descendants; none where it has ended."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _memory(pid: int, *, proportional: bool) -> int:
    total = 0
    for process in _family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            try:
                total += process.memory_full_info().pss if proportional else process.memory_info().rss
            except (psutil.AccessDenied, AttributeError):  # not ours to look into, or not Linux
                total += process.memory_info().rss
    return total


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process, its group and its descendants; those already gone do not matter."""
    family = _family(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait(timeout=30)
