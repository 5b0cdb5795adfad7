"""Command lines that keep foreign code apart from this host: namespaces, few files, no capabilities.

Linux only (5.12), by util-linux (`unshare`, `setpriv`), as root or where unprivileged user namespaces are allowed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gprojci_workers import enclosure

PRIVATE = (Path("/tmp"), Path("/var/tmp"), Path("/run"), Path("/var/run"))  # noqa: S108
"""Where the host's programs keep what is nobody else's business: files of the day, sockets, container secrets."""
PROCESSES = 4096
FILE_BYTES = 32 * 2**30
PRIVATE_MIB = 1024
REFUSAL = (
    "this host can make no sandbox (workers/README.md, The sandbox, says what it needs); code under test would have "
    "the worker's files and token in its reach. GPROJCI_ALLOW_UNSANDBOXED=true runs it all the same"
)
# A signal at the parent's death comes for deaths after it was asked for: who has another parent by then ends at once.
_STILL = '[ "$PPID" = "$1" ] || exit 125; shift; exec "$@"'
_APART = ("--pid", "--fork", "--kill-child", "--ipc", "--mount", "--mount-proc")


@dataclass(frozen=True)
class Files:
    """What a sandboxed command finds of this host's files: all of them, read-only, with these exceptions."""

    writable: tuple[Path, ...] = ()
    """What it may change."""
    private: tuple[Path, ...] = ()
    """Directories that it finds empty beside those of every host (`PRIVATE`)."""
    readable: tuple[Path, ...] = ()
    """What of those it may read all the same."""
    hidden: tuple[Path, ...] = ()
    """Files and directories with secrets, which it finds empty whatever else was said."""

    def to_json(self) -> str:
        """As the enclosure takes it: resolved paths that exist, no private directory inside another."""
        private = _existing((*PRIVATE, *self.private))
        outer = [path for path in private if not any(path.is_relative_to(other) for other in private - {path})]
        shown = {"writable": _existing(self.writable), "readable": _existing(self.readable) - private}
        view: dict[str, object] = {name: sorted(map(str, paths)) for name, paths in shown.items()}
        view |= {"private": sorted(map(str, outer)), "hidden": sorted(map(str, _existing(self.hidden)))}
        return json.dumps(view | {"mib": PRIVATE_MIB, "processes": PROCESSES, "file_bytes": FILE_BYTES})


def _existing(paths: tuple[Path, ...]) -> set[Path]:
    return {path.resolve() for path in paths if path.exists()}


def wrap(command: list[str], *, network: bool, files: Files) -> tuple[list[str], bool]:
    """A command in namespaces of its own, as a command line for this process, and whether this host could give them.

    It dies with the process that asks.

    Args:
        network: whether it keeps the host's network; otherwise it has one without interfaces.
        files: what it finds of this host's files.
    """
    unshare = _unshare()
    if not unshare:
        return dying(command), False
    return dying([*unshare, *([] if network else ["--net"]), *_APART, *_enclosed(files), *command]), True


def dying(command: list[str]) -> list[str]:
    """A command that dies with the process that asks, wherever there is `setpriv`."""
    if not shutil.which("setpriv"):
        return command
    return ["setpriv", "--pdeathsig", "KILL", "sh", "-c", _STILL, "sh", str(os.getpid()), *command]


def is_possible() -> bool:
    """Whether this host can give namespaces and arrange the files in them."""
    return bool(_unshare())


def _enclosed(files: Files) -> list[str]:
    return [sys.executable, "-I", "-S", enclosure.__file__, files.to_json()]


@cache
def _unshare() -> tuple[str, ...]:
    """The `unshare` that works here: as root, else by a user namespace, else none."""
    if not shutil.which("unshare") or not shutil.which("setpriv"):
        return ()
    for unshare in (("unshare",), ("unshare", "--user", "--map-root-user")):
        probe = [*unshare, "--net", *_APART, *_enclosed(Files(hidden=(Path("/etc/passwd"),))), "true"]
        if subprocess.run(probe, cwd="/", capture_output=True, check=False, timeout=30).returncode == 0:
            return unshare
    return ()
