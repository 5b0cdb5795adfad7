"""Program that encloses a command: run by `unshare` inside new namespaces, it shows it few files and then becomes it.

    python -I -S enclosure.py VIEW COMMAND…      VIEW: JSON of `isolation.Files.to_json`, paths that exist

The whole tree becomes read-only but for the entries of processes in `/proc`, the private directories empty; in them
appear again what may be read and what may be written. `/dev` has the harmless devices and the GPUs. Exit code 125: this
host does not allow one of the steps.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

# sys/mount.h and linux/mount.h. mount_setattr (Linux 5.12) changes a whole tree and, unlike a remount, needs not repeat
# the flags that a user namespace must not clear.
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
SYS_MOUNT_SETATTR = 442  # of every architecture
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
GPUS = ("nvidia*", "nvidia-caps/*", "dri/*", "kfd")
SHARED_MEMORY = "/dev/shm"  # noqa: S108
_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    arguments = [text.encode() for text in (source, target, kind)]
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def bind(source: str, target: str) -> None:
    """Shows `source`, with all that is mounted under it, at `target` as well."""
    mount(source, target, "none", MS_BIND | MS_REC)


def set_read_only(path: str, on: bool) -> None:
    """For a mount and all mounts under it."""
    change = _Attributes(attr_set=MOUNT_ATTR_RDONLY) if on else _Attributes(attr_clr=MOUNT_ATTR_RDONLY)
    answer = _libc.syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        path.encode(),
        ctypes.c_uint(AT_RECURSIVE),
        ctypes.byref(change),
        ctypes.c_size_t(ctypes.sizeof(change)),
    )
    _checked(answer, f"mount_setattr {path}")


def _checked(answer: int, what: str) -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def make_place(source: Path, target: Path) -> None:
    """A mount point for `source`, with the directories above it."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


def empty(directory: str, kept: list[str], mib: int) -> None:
    """Puts an empty directory over one, and into it what of it is kept, parents before children."""
    os.chdir(directory)  # what is under the new mount can still be reached from here
    mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, f"size={mib}m,mode=1777")
    for path in map(Path, sorted(kept)):
        if not path.exists():  # else it lies in one that is there already
            below = path.relative_to(directory)
            make_place(below, path)
            bind(str(below), str(path))
    os.chdir("/")


def writable_processes() -> None:
    """Of `/proc` what belongs to processes, which is their own business: CUDA cannot be initialised (error 304) where a
    thread cannot write its name there. All the rest, the kernel's settings with it, stays read-only.
    """
    entries = [path for path in Path("/proc").iterdir() if not path.name.isdigit() and not path.is_symlink()]
    set_read_only("/proc", False)
    for path in map(str, entries):
        bind(path, path)
        set_read_only(path, True)


def private_devices() -> None:
    """A `/dev` with shared memory, the devices that programs expect, and those of GPUs."""
    os.chdir("/dev")
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "size=1m,mode=0755")
    for device in (found for pattern in (*DEVICES, *GPUS) for found in Path().glob(pattern)):
        if device.is_char_device():
            make_place(device, "/dev" / device)
            bind(str(device), f"/dev/{device}")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        Path("/dev", name).symlink_to(f"/proc/self/{target}")
    Path(SHARED_MEMORY).mkdir()
    mount("tmpfs", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, "size=1024m,mode=1777")
    os.chdir("/")


def enclose(view: dict[str, Any]) -> None:
    """Arranges the files of this mount namespace.

    Raises:
        OSError: this host does not allow it.
    """
    resolver = Path("/etc/resolv.conf").resolve()
    name_servers = resolver.read_text() if resolver.exists() else ""
    writable, private = view["writable"], view["private"]
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    for path in writable:
        bind(path, path)
    set_read_only("/", True)  # with /proc, where uid 0 could change the kernel's settings without any capability
    kept = [*view["readable"], *writable]
    for directory in private:
        empty(directory, [path for path in kept if path.startswith(f"{directory}/")], view["mib"])
    for path in writable:
        set_read_only(path, False)
    writable_processes()
    private_devices()
    if name_servers and not resolver.exists():  # it lay in /run
        resolver.parent.mkdir(parents=True, exist_ok=True)
        resolver.write_text(name_servers)
    for path in map(Path, view["hidden"]):
        if path.is_dir():
            mount("tmpfs", str(path), "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=0700")
        elif path.exists():
            bind("/dev/null", str(path))


def main() -> None:
    view, command = json.loads(sys.argv[1]), sys.argv[2:]
    directory = Path.cwd()
    try:
        enclose(view)
        os.chdir(directory)
    except OSError as error:
        print(f"this host does not let the sandbox be made: {error}", file=sys.stderr)
        sys.exit(125)
    for limit, value in ((resource.RLIMIT_NPROC, view["processes"]), (resource.RLIMIT_FSIZE, view["file_bytes"])):
        hard = resource.getrlimit(limit)[1]
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (lowest, lowest))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execvp("setpriv", ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *command])  # noqa: S606


if __name__ == "__main__":
    main()
