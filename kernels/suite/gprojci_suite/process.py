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
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from gprojci_suite.contract.vocabulary import Status

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


class CapturedOutput:
    """Drains a process's output in a thread and keeps its end, however much is printed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = b""
        self._total = 0
        self._stream = stream
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := os.read(self._stream.fileno(), 1 << 20):
            self._total += len(chunk)
            self._kept = (self._kept + chunk)[-OUTPUT_KEPT:]

    def text(self, wait: float = 0.2) -> str:
        """What was printed; only the last bytes when it was long. Waits for a process that has just ended."""
        self._thread.join(wait)
        kept = self._kept.decode(errors="replace")
        return f"[{self._total - OUTPUT_KEPT} bytes left out] {kept}" if self._total > OUTPUT_KEPT else kept


class BackendProcess:
    """One `gprojci_suite.child`, in a process group of its own that dies as a whole."""

    def __init__(self, python: str, directory: Path, threads: int) -> None:
        self.directory = directory
        command_read, command_write = os.pipe()
        answer_read, answer_write = os.pipe()
        arguments = [python, "-P", "-m", "gprojci_suite.child", str(command_read), str(answer_write), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=directory,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
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
        self.output = CapturedOutput(self._process.stdout)

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a command; a process that has died is found out by `receive`."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any]:
        """The answer to the command sent last.

        Raises:
            BackendFailure: with the status it names; timeout after `seconds`, when the process group is killed;
                runtime_error or out_of_memory when the process has died.
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
        """Kill the whole process group and return the exit status; safe to call again."""
        if self._process.returncode is None:
            died = self._process.poll() is not None
            if not died:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                # Whatever the dead process left behind shares its group.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return self._process.returncode

    def close(self) -> None:
        """End the process and release its pipes."""
        self.kill()
        os.close(self._write)
        os.close(self._read)

    def _line(self, deadline: float, seconds: float) -> bytes:
        while b"\n" not in self._buffer:
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
        if code == -signal.SIGKILL:
            return self._failure("out_of_memory", "killed by the system (SIGKILL), as it does when memory runs out")
        if code < 0:
            return self._failure("runtime_error", f"died of {signal.Signals(-code).name}")
        return self._failure("runtime_error", f"exited with status {code} in the middle of its work")

    def _failure(self, status: Status, reason: str) -> BackendFailure:
        printed = self.output.text().strip()
        return BackendFailure(status, f"{reason}\noutput: {printed}" if printed else reason)


def available_threads() -> int:
    """CPUs this process may run on, or OMP_NUM_THREADS where that is set lower."""
    cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cpus, int(limit)) if limit.isdigit() and int(limit) > 0 else cpus
