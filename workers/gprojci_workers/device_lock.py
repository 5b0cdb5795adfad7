"""One measurement a GPU: a lock that all workers of a host respect, held while the ruler has the device.

`flock` on a file named after the GPU: the kernel gives it up when its holder dies, however that comes about.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gprojci_workers import nvidia_smi
from gprojci_workers.failure import AttemptCancelled, AttemptFailed

LOOK_SECONDS = 0.5


@contextmanager
def hold(
    device: str,
    directory: Path,
    *,
    seconds: float,
    log: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> Iterator[None]:
    """Holds the locks of every GPU that this process may use; a CPU has none.

    Args:
        directory: where the lock files lie; the same for all workers that share a GPU.
        seconds: how long to wait for a GPU that another worker measures on.

    Raises:
        AttemptFailed: `lost_worker`, the GPU did not become free in that time, or the directory cannot be written.
        AttemptCancelled: the attempt is to be given up.
    """
    with contextlib.ExitStack() as held:
        for name in visible_gpus() if device == "cuda" else []:
            path = directory / f"gprojci-{name}.lock"
            try:
                file = held.enter_context(os.fdopen(_open(path), "r+"))
            except OSError as error:
                raise AttemptFailed("lost_worker", f"GPROJCI_LOCK_DIR: {path}: {error.strerror}") from error
            _take(file.fileno(), name, time.monotonic() + seconds, log, should_stop)
        yield


def visible_gpus() -> list[str]:
    """UUIDs of the GPUs that CUDA_VISIBLE_DEVICES leaves to this process, in an order that all processes share."""
    rows = (line.split(",", 1) for line in nvidia_smi.query("index,uuid").splitlines() if "," in line)
    by_index = {index.strip(): uuid.strip() for index, uuid in rows}
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return sorted(by_index.values())
    return sorted({by_index.get(one.strip(), one.strip()) for one in chosen.split(",") if one.strip()})


def _open(path: Path) -> int:
    """Another user's file in a sticky directory must not be opened with O_CREAT (fs.protected_regular)."""
    while True:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # another worker made it just now
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(descriptor, 0o666)  # whatever the umask: the other worker may be another user
                return descriptor


def _take(
    descriptor: int, name: str, give_up: float, log: Callable[[str], None], should_stop: Callable[[], bool]
) -> None:
    said = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not said:
                log(f"{name}: another worker measures on it; waiting\n")
                said = True
        if should_stop():
            raise AttemptCancelled("it was to stop while it waited for the GPU")
        if time.monotonic() > give_up:
            raise AttemptFailed("lost_worker", f"{name} was not free in time: another worker measures on it")
        time.sleep(LOOK_SECONDS)
