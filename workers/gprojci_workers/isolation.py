"""Command lines that keep foreign code apart from this host: namespaces, hidden paths, no capabilities.

Linux only, by util-linux (`unshare`, `setpriv`), as root or where unprivileged user namespaces are allowed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

# Covers each path (a directory by an empty one, a file by /dev/null), then gives up every capability, so that what
# follows cannot uncover it. "$1" is how many paths follow; the command stands after them.
_COVER = """
count=$1; shift
while [ "$count" -gt 0 ]; do
    if [ -d "$1" ]; then mount -t tmpfs -o size=4k,mode=0700 none "$1" || exit 125
    elif [ -e "$1" ]; then mount --bind /dev/null "$1" || exit 125
    fi
    count=$((count - 1)); shift
done
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
# A signal at the parent's death comes for deaths after it was asked for: who has another parent by then ends at once.
_STILL = '[ "$PPID" = "$1" ] || exit 125; shift; exec "$@"'
_APART = ("--pid", "--fork", "--kill-child", "--mount", "--mount-proc")


def wrap(command: list[str], *, network: bool, hidden: tuple[Path, ...]) -> tuple[list[str], bool]:
    """A command in namespaces of its own, as a command line for this process, and whether this host could give them.

    It dies with the process that asks.

    Args:
        network: whether it keeps the host's network; otherwise it has one without interfaces.
        hidden: files and directories that it finds empty.
    """
    unshare = _unshare()
    still = ["sh", "-c", _STILL, "sh", str(os.getpid())]
    dies = ["setpriv", "--pdeathsig", "KILL", *still] if shutil.which("setpriv") else []
    if not unshare:
        return [*dies, *command], False
    present = [str(path) for path in hidden if path.exists()]
    apart = [*unshare, *([] if network else ["--net"]), *_APART]
    return [*dies, *apart, "sh", "-c", _COVER, "sh", str(len(present)), *present, *command], True


@cache
def _unshare() -> tuple[str, ...]:
    """The `unshare` that works here: as root, else by a user namespace, else none."""
    if not shutil.which("unshare") or not shutil.which("setpriv"):
        return ()
    for unshare in (("unshare",), ("unshare", "--user", "--map-root-user")):
        probe = [*unshare, "--net", *_APART, "sh", "-c", _COVER, "sh", "1", "/tmp", "true"]  # noqa: S108
        if subprocess.run(probe, capture_output=True, check=False, timeout=30).returncode == 0:
            return unshare
    return ()
