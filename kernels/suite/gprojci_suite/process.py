"""The parent's end of one backend process: commands, deadlines, captured output, and a named status for every death."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from gprojci_suite import descendants
from gprojci_suite.contract.spec import LimitsSpec
from gprojci_suite.contract.vocabulary import Status
from gprojci_suite.ending import Ending

OUTPUT_KEPT = 4000
MESSAGE_LIMIT = 1_000_000
FAILURES: tuple[Status, ...] = (
    "unsupported",
    "build_error",
    "wrong_result",
    "runtime_error",
    "timeout",
    "out_of_memory",
)


class BackendFailure(Exception):
    """A backend failed.

    Attributes:
        status: the report's status.
        detail: the reason, with the end of what the process printed.
    """

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status: Status = status
        self.detail = detail


class SessionOver(BackendFailure):
    """The session ended before the backend answered; the detail is why."""

    def __init__(self, reason: str) -> None:
        super().__init__("timeout", reason)


class CapturedOutput:
    """Drains a process's output in a thread and keeps its end, however much is printed; says once that it is too much.

    Args:
        stream: its output.
        limit: bytes that may be printed.
        on_excess: called in the thread when more was printed; draining goes on.
    """

    def __init__(self, stream: IO[bytes], limit: int, on_excess: Callable[[], None]) -> None:
        self._kept = b""
        self._total = 0
        self._stream = stream
        self._limit = limit
        self._on_excess = on_excess
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := os.read(self._stream.fileno(), 1 << 20):
            within = self._total <= self._limit
            self._total += len(chunk)
            self._kept = (self._kept + chunk)[-OUTPUT_KEPT:]
            if within and self._total > self._limit:
                self._on_excess()

    def text(self, wait: float = 0.2) -> str:
        """What was printed; only the last bytes when it was long. Waits for a process that has just ended."""
        self._thread.join(wait)
        kept = self._kept.decode(errors="replace")
        return f"[{self._total - OUTPUT_KEPT} bytes left out] {kept}" if self._total > OUTPUT_KEPT else kept


class BackendProcess:
    """One `gprojci_suite.child`, in a session of its own that dies as a whole, with all that it started.

    Args:
        python: interpreter.
        directory: its working directory, with its temporary directory in it.
        threads: that torch may use.
        limits: on its output, files, processes and threads.
        ending: of the session; it is killed when that comes.
    """

    def __init__(self, python: str, directory: Path, threads: int, limits: LimitsSpec, ending: Ending) -> None:
        self.directory = directory
        self.limits = limits
        self.ending = ending
        self._mark = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._ended = False
        self._seen: dict[int, int] = {}
        self._condemned: str | None = None
        temporary = directory / "tmp"
        temporary.mkdir(mode=0o700)
        command_read, command_write = os.pipe()
        answer_read, answer_write = os.pipe()
        numbers = (command_read, answer_write, os.getpid(), limits.file_bytes)
        arguments = [python, "-P", "-m", "gprojci_suite.child", *(str(number) for number in numbers)]
        environment = {"OMP_NUM_THREADS": str(threads), "TMPDIR": str(temporary), descendants.MARK: self._mark}
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(command_read, answer_write),
                start_new_session=True,
            )
        except OSError as error:
            os.close(command_write)
            os.close(answer_read)
            raise BackendFailure("build_error", f"cannot start {python}: {error}") from error
        finally:
            os.close(command_read)
            os.close(answer_write)
        self._write, self._read = command_write, answer_read
        self._buffer = b""
        assert self._process.stdout is not None
        printed = f"printed more than {_bytes(limits.output_bytes)}"
        self.output = CapturedOutput(self._process.stdout, limits.output_bytes, lambda: self.condemn(printed))

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a command; a process that has died is found out by `receive`."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any]:
        """The answer to the command sent last.

        Raises:
            BackendFailure: with the status it names; timeout after `seconds`, when the process group is killed;
                runtime_error or out_of_memory when the process has died.
            SessionOver: the session ends; the process group is killed.
        """
        line = self._line(time.monotonic() + seconds, seconds)
        try:
            answer = json.loads(line)
            status = answer["status"]
        except (ValueError, TypeError, KeyError) as error:
            self.kill()
            raise self._failure("runtime_error", "wrote into the channel to its parent") from error
        if status in FAILURES:
            raise self._failure(status, str(answer.get("detail")))
        return dict(answer)

    def request(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a command and return its answer; raises like `receive`."""
        self.send(message)
        return self.receive(seconds)

    def kill(self) -> int:
        """Kill the process with all its descendants and return its exit status; safe to call again, from any thread."""
        with self._lock:
            if not self._ended:
                descendants.end(self._process.pid, self._mark, self._seen)
                self._process.wait()
                self._ended = True
            return self._process.returncode

    def condemn(self, reason: str) -> None:
        """Kill for passing a limit: whatever is asked of it next fails as runtime_error for this reason."""
        if self._condemned is None:
            self._condemned = reason
            self.kill()

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return not self._ended and self._process.poll() is None

    @property
    def condemned(self) -> str | None:
        """Which limit it passed."""
        return self._condemned

    def count(self, processes: Mapping[int, descendants.Entry]) -> None:
        """Condemn it when more processes or threads than allowed are below it."""
        if self._ended or self._condemned is not None:
            return
        found = descendants.family(processes, self._process.pid, self._seen)
        self._seen = {pid: processes[pid].started for pid in found}
        if len(found) > self.limits.processes:
            self.condemn(f"started more than {self.limits.processes} processes")
        elif sum(processes[pid].threads for pid in found) > self.limits.threads:
            self.condemn(f"started more than {self.limits.threads} threads")

    def close(self) -> None:
        """End the process and release its pipes."""
        self.kill()
        os.close(self._write)
        os.close(self._read)

    def _line(self, deadline: float, seconds: float) -> bytes:
        while b"\n" not in self._buffer:
            if (reason := self.ending.reason) is not None:
                self.kill()
                raise SessionOver(reason)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                self.kill()
                raise self._failure("timeout", f"no answer within {seconds:g} s")
            ready, _, _ = select.select([self._read], [], [], min(remaining, 0.2))
            chunk = os.read(self._read, 1 << 16) if ready else b""
            if (ready and not chunk) or (not ready and self._process.poll() is not None):
                raise self._death()
            self._buffer += chunk
            if len(self._buffer) > MESSAGE_LIMIT:
                self.kill()
                raise self._failure("runtime_error", "wrote into the channel to its parent")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self) -> BackendFailure:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._failure("runtime_error", "closed the channel to its parent")
        self.kill()  # What it started outlives it.
        if code == -signal.SIGKILL:
            return self._failure("out_of_memory", "killed by the system (SIGKILL), as it does when memory runs out")
        if code < 0:
            return self._failure("runtime_error", f"died of {signal.Signals(-code).name}")
        return self._failure("runtime_error", f"exited with status {code} in the middle of its work")

    def _failure(self, status: Status, reason: str) -> BackendFailure:
        if self._condemned is not None:
            status, reason = "runtime_error", self._condemned
        printed = self.output.text().strip()
        return BackendFailure(status, f"{reason}\noutput: {printed}" if printed else reason)


def available_threads() -> int:
    """CPUs this process may run on, or OMP_NUM_THREADS where that is set lower."""
    cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cpus, int(limit)) if limit.isdigit() and int(limit) > 0 else cpus


class Headcount:
    """Context manager that counts the descendants of backends in a thread, every `INTERVAL` seconds."""

    INTERVAL = 0.2

    def __init__(self) -> None:
        self._watched: list[BackendProcess] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headcount", daemon=True)

    def __enter__(self) -> "Headcount":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def watch(self, process: BackendProcess) -> None:
        """Count this one too; those that have ended count nothing."""
        self._watched.append(process)

    def _run(self) -> None:
        while not self._ended.wait(self.INTERVAL):
            if self._watched:
                processes = descendants.table()
                for process in tuple(self._watched):
                    process.count(processes)


def _bytes(number: int) -> str:
    size, unit = next(((s, u) for s, u in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")) if number >= s), (1, "bytes"))
    return f"{number / size:g} {unit}"
