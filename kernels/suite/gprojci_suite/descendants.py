"""The processes that a backend started, also those that left its process group: counted, and ended to the last one.

Linux only, from /proc, one look for all backends (psutil would read every process several times over, beside a
measurement). The backend's process adopts its orphans (PR_SET_CHILD_SUBREAPER), so what it started stays below it; once
it is dead they are told by their session, by the mark that they inherited in their environment, or because an earlier
look found them. A process that leaves the session, clears its environment and loses its parent between two looks is not
found; the process namespace of a worker's sandbox ends that one too.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MARK = "GPROJCI_BACKEND_PROCESS"
PROC = Path("/proc")
END_SECONDS = 20.0


@dataclass(frozen=True)
class Entry:
    """One process: state letter, parent, session, number of threads, and its start in clock ticks after boot."""

    state: str
    parent: int
    session: int
    threads: int
    started: int


def table() -> dict[int, Entry]:
    """All processes by id; empty where there is no /proc."""
    found: dict[int, Entry] = {}
    if sys.platform != "linux":
        return found
    for directory in PROC.iterdir():
        if directory.name.isdigit():
            try:
                # The second field is the command's name in brackets, which may hold anything.
                fields = (directory / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            found[int(directory.name)] = Entry(fields[0].decode(), *(int(fields[index]) for index in (1, 3, 17, 19)))
    return found


def family(processes: Mapping[int, Entry], root: int, seen: Mapping[int, int]) -> set[int]:
    """A process, what is left of its session, those `seen` before (start by id), and all that descend from these."""
    children: dict[int, list[int]] = {}
    for pid, entry in processes.items():
        children.setdefault(entry.parent, []).append(pid)
    found: set[int] = set()
    known = (pid for pid, entry in processes.items() if entry.session == root or seen.get(pid) == entry.started)
    open_ends = [root, *known]
    while open_ends:
        pid = open_ends.pop()
        if pid in processes and pid not in found:
            found.add(pid)
            open_ends += children.get(pid, [])
    return found


def end(root: int, mark: str, seen: Mapping[int, int]) -> None:
    """Kill a process that leads a session and everything that it started.

    All are stopped before the first is killed: what is stopped can start nothing new.

    Args:
        root: the process; a child of this one that has not been waited for, or one that has ended.
        mark: value of the environment variable `MARK` that it was started with.
        seen: start by id of processes known to be its own.
    """
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(root, signal.SIGKILL)
        return
    stopped: set[int] = set()
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        processes = table()
        found = family(processes, root, seen) | _marked(processes, mark)
        alive = {pid for pid in found if processes[pid].state != "Z"}
        if not alive:
            return
        fresh = alive - stopped
        for pid in fresh or alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP if fresh else signal.SIGKILL)
        stopped |= fresh
        if not fresh:
            time.sleep(0.005)


def _marked(processes: Mapping[int, Entry], mark: str) -> set[int]:
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            if wanted in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found
