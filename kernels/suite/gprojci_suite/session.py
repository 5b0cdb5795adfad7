"""All backends of one run, each in its own process, measured in turn; a failure ends that backend only."""

import contextlib
import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from gprojci_suite import clock, exchange, side_by_side
from gprojci_suite.answers import (
    COVER_LIMIT,
    FLUSH_LIMIT,
    StepSeconds,
    TrainingStepTaken,
    cover_of,
    dtype_of,
    room_of,
    steps_of,
    training_steps_of,
)
from gprojci_suite.audit import Audit
from gprojci_suite.contract.report import Backend
from gprojci_suite.contract.spec import LimitsSpec
from gprojci_suite.contract.vocabulary import TENSORS, Device, Status
from gprojci_suite.ending import Ending
from gprojci_suite.member import Case, Launch, Member
from gprojci_suite.process import BackendFailure, BackendProcess, Headcount, SessionOver, available_threads
from gprojci_suite.rotation import same_bits
from gprojci_suite.stopwatch import Stopwatch, is_work

RETAKES = 2


class Session:
    """Context manager that owns the processes and a private directory for the tensors between them.

    Args:
        launches: the backends.
        device: what they compute on.
        limits: of each of them.
        ending: when the session is to end early; never, when left out.
        working: adds up the seconds in which a backend computes or is timed; of this session alone when left out.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        device: Device,
        limits: LimitsSpec,
        ending: Ending | None = None,
        working: Stopwatch | None = None,
    ) -> None:
        self.device = device
        self.limits = limits
        self.ending = ending or Ending()
        self.working = working or Stopwatch()
        self.suite = "start"
        self.threads = available_threads()
        self._directory = Path(tempfile.mkdtemp(prefix="gprojci-session-"))
        self._files: dict[int, tuple[Case, Path]] = {}
        self._audits: dict[int, tuple[Audit, Path]] = {}
        self._headcount = Headcount()
        self._launched = False
        self.members = [Member(launch, self._directory / str(index)) for index, launch in enumerate(launches)]
        for index, member in enumerate(self.members):
            member.further = [
                Member(member.launch, self._directory / f"{index}-{number}")
                for number in range(1, member.launch.processes)
            ]

    def __enter__(self) -> "Session":
        self._headcount.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._headcount.__exit__()
        side_by_side.in_threads([member.stop for member in self.members])
        shutil.rmtree(self._directory, ignore_errors=True)

    def launch(self) -> None:
        """Start the first process of all backends side by side and wait for none of them."""
        for member in self.members:
            self._send_start(member)
        self._launched = True

    def start(self) -> Iterator[Member]:
        """Start all backends unless `launch` has; yields each once its first process is ready or has failed."""
        if not self._launched:
            self.launch()
        for member in self.members:
            self._await_start(member)
            yield member

    def launch_further(self) -> None:
        """Start the further processes of all that have not failed, and wait for none: they are needed to time alone."""
        for member in self.members:
            for one in member.further if member.ok else ():
                self._send_start(one)

    def start_further(self) -> None:
        """Wait until the processes of `launch_further` are ready; a member fails for what one of its has failed for."""
        for member in self.members:
            for one in member.further:
                self._await_start(one)
            self._blame(member)

    def _send_start(self, member: Member) -> None:
        launch = member.launch
        member.directory.mkdir(mode=0o700)
        try:
            member.process = BackendProcess(launch.python, member.directory, self.threads, self.limits, self.ending)
        except BackendFailure as failure:
            member.fail(failure.status, failure.detail)
            return
        self._headcount.watch(member.process)
        member.process.send(
            {
                "do": "start",
                "peer": launch.backend if launch.entry is None else None,
                "entry": launch.entry,
                "site": launch.site,
                "path": launch.path,
                "device": self.device,
                "threads": self.threads,
            }
        )

    def _await_start(self, member: Member) -> None:
        if member.process is None:
            return
        try:
            answer = member.process.receive(self.limits.start_seconds)
            member.takes_deterministic = answer.get("deterministic") is True
            seconds = answer.get("seconds")
            member.start_seconds = seconds if isinstance(seconds, float) and 0 <= seconds < float("inf") else None
        except SessionOver as over:
            self._failed(member, "the process", over)
        except BackendFailure as failure:
            # A subject that dies while it is imported was not built right.
            subject = member.launch.role == "subject" and failure.status == "runtime_error"
            self._end(member, "build_error" if subject else failure.status, failure.detail)

    def _blame(self, member: Member) -> None:
        """End a member one of whose further processes has failed, for that reason."""
        failed = next((one for one in member.further if not one.ok), None)
        if failed is not None:
            member.unfinished = failed.unfinished
            self._end(member, failed.status, failed.detail or "")

    def over(self, what: str) -> bool:
        """Whether the session ends before `what`; then every backend that has not failed is left unfinished."""
        reason = self.ending.reason
        for member in self.members if reason is not None else ():
            self._leave(member, f"{reason} before {what}")
        return reason is not None

    def refuse_unsupported(self, cases: Sequence[Case]) -> None:
        """Mark as unsupported every backend that says it cannot compute one of the cases."""
        self.refuse_unsupported_shapes({case.name: case.shape() for case in cases})

    def refuse_unsupported_shapes(self, shapes: Mapping[str, Mapping[str, Any]]) -> None:
        """The same for cases without tensors: the fields of `peers.Case` by name of the case."""
        for member in self.members:
            for name, shape in shapes.items():
                if member.ok:
                    self._asked(member, {"do": "supported", "case": shape}, name)

    def warm(self, members: Sequence[Member], case: Case, *, further: bool) -> None:
        """Have processes of the members read a case and call their backend on it once, side by side.

        Nothing needs it, and nothing of it counts. But the first call of a process compiles, or loads kernels, for
        seconds in which it hardly uses the device, and one after the other they would leave it idle for minutes. As
        many run side by side as there are cores; further processes as many as find room on the device, each taking what
        the first of its backend took. A backend that fails without dying may have lacked that: its next call tells.

        Args:
            members: those that have failed are left out.
            case: what they read.
            further: whether the further processes are due after the first ones.
        """
        firsts = [(member, member) for member in members]
        self._load_all(firsts, case)
        room = self._warm_all(firsts, case)
        if further:
            seconds = [(member, one) for member in members for one in member.further]
            self._load_all(seconds, case)
            self._warm_all(seconds, case, room / 2)

    def compute(self, member: Member, case: Case) -> dict[str, Tensor] | None:
        """o, dq, dk and dv of a case, or None when the backend failed; NaN and Inf are marked but returned."""
        try:
            return self._compute(member, case)
        except BackendFailure as failure:
            self._failed(member, case.name, failure)
            return None

    def compute_unless_refused(self, member: Member, case: Case) -> dict[str, Tensor] | str | None:
        """Like `compute`, but a backend that refuses the case as unsupported goes on, and its reason is returned."""
        try:
            return self._compute(member, case)
        except BackendFailure as failure:
            if failure.status == "unsupported":
                return failure.detail
            self._failed(member, case.name, failure)
            return None

    def time(
        self, member: Member, case: Case, repeat: int = 1, process: int = 0, audit: Audit | None = None
    ) -> list[StepSeconds] | None:
        """Seconds of `repeat` steps, each on inputs of its own, or None when the backend failed.

        The steps are those of the member's process `process` mod their number; whichever fails, the member has failed.
        With an audit its inputs are those of each step, and their results are checked. A step whose launch was not
        covered says more of the host than of its kernels: it is taken again, RETAKES times at most.
        """
        worker = member.all[process % len(member.all)]
        steps: list[StepSeconds] = []
        try:
            self._load(worker, case)
            file = None if audit is None else str(self._audit_file(audit))
            for _ in range(repeat):
                if worker.rested:  # What it gave back must not be allocated within the time that counts.
                    self._request(worker, {"do": "turn", "audit": None})
                    self._request(worker, {"do": "time", "repeat": 1, "idle": False, "spin": True})
                for again in range(1 + RETAKES):
                    self._request(worker, {"do": "turn", "audit": None if again else file})
                    taken, reading = self._timed(worker)
                    self._request(worker, {"do": "unchanged"})
                    if audit is not None and not again:
                        self._audited(worker, audit)
                    member.single_calls.readings.append(reading)
                    if member.single_calls.due():
                        member.single_calls.empties.append(self._timed(worker, idle=True)[1].beside)
                    if not any(step.late for step in taken):
                        break
                steps += taken
                if member.further:
                    self._rest(worker)
        except BackendFailure as failure:
            self._failed(member, case.name, failure)
            return None
        return steps

    def check_clock(self, member: Member, case: Case, process: int = 0) -> bool:
        """Hold a child's clock against the parent's over batches of steps (see `clock`); False when it failed.

        Args:
            member: the backend, timed before; gets the entry of the report.
            case: what it is timed on.
            process: which of the member's processes, mod their number.
        """
        process %= len(member.all)
        worker = member.all[process]
        fastest = min(reading.elapsed for reading in member.single_calls.readings)
        member.single_calls = clock.SingleCalls()

        def timed(calls: int) -> clock.Reading:
            self._request(worker, {"do": "turn", "audit": None})
            reading = self._timed(worker, calls, spin=False)[1]
            self._request(worker, {"do": "unchanged"})
            return reading

        def empty(calls: int) -> clock.Reading:
            return self._timed(worker, calls, idle=True, spin=False)[1]

        try:
            self._load(worker, case)
            # One process is enough to find out that this machine tells nothing of this backend.
            patient = all(check.verdict != "unclear" for check in member.clock_checks if check.case == case.name)
            found = clock.check(timed, empty, fastest, clock.SLACK[self.device], patient=patient)
            member.clock_checks.append(found.entry(member.launch.backend, member.launch.revision, case.name, process))
            if member.further:
                self._rest(worker)
            if found.verdict == "disagrees":
                raise _clocks_disagree(found.rounds.claimed, found.rounds.called)
            return True
        except BackendFailure as failure:
            self._failed(member, case.name, failure)
            return False

    def check_single_calls(self, member: Member, case: Case) -> bool:
        """Hold the clock of all single steps since `check_clock` to the parent's; False when it failed."""
        return self._check_singles(member, member.single_calls, case.name)

    def check_steps(self, member: Member, model: str) -> bool:
        """The same for its single training steps of a model since the last check."""
        steps, member.single_steps = member.single_steps, clock.SingleCalls()
        return self._check_singles(member, steps, f"step {model}")

    def _check_singles(self, member: Member, singles: clock.SingleCalls, where: str) -> bool:
        if not singles.agree(clock.SINGLE_SLACK[self.device]):
            self._failed(member, where, _clocks_disagree(singles.claimed, singles.called))
        return member.ok

    def inspect(self, member: Member, case: Case, message: Mapping[str, Any]) -> dict[str, Any] | str:
        """Answer of the child to a question about a case that no measurement hangs on, or why there is none."""
        try:
            self._load(member, case)
            return self._request(member, message)
        except BackendFailure as failure:
            return failure.detail

    def load_step(self, member: Member, model: str, seed: int) -> bool:
        """Build a model in the member's process; False when that failed."""
        return self._asked(member, {"do": "load_step", "model": model, "seed": seed}, f"step {model}") is not None

    def step(
        self, member: Member, model: str, repeat: int = 1, *, skip_attention: bool = False
    ) -> list[TrainingStepTaken] | None:
        """`repeat` training steps of the model loaded last, or None when the backend failed.

        A single step may take as long as a call and a start together: the first one of a model compiles. Single steps
        are what `check_steps` checks. They are not checked in batches before, as calls are: how many those need would
        depend on the machine, and the losses of two backends are compared after the same number of steps.
        """
        begin = time.perf_counter()
        message = {"do": "step", "repeat": repeat, "skip_attention": skip_attention}
        more = self.limits.start_seconds if repeat == 1 else 0.0
        answer = self._asked(member, message, f"step {model}", more)
        if answer is None:
            return None
        elapsed = time.perf_counter() - begin
        try:
            taken = training_steps_of(answer, repeat)
            if repeat == 1:
                member.single_steps.readings.append(clock.Reading(elapsed, taken[0].seconds))
                if member.single_steps.due():
                    begin = time.perf_counter()
                    self._request(member, {"do": "nothing"})
                    member.single_steps.empties.append(time.perf_counter() - begin)
        except BackendFailure as failure:
            self._failed(member, f"step {model}", failure)
            return None
        return taken

    def release(self, member: Member) -> None:
        """Have the member give back the memory of its cases and models."""
        if member.ok and self._asked(member, {"do": "release"}, "release") is not None:
            member.loaded = None

    def stop_further(self) -> None:
        """End all processes but the first of each member: what comes next is measured in that one."""
        side_by_side.in_threads([member.stop_further for member in self.members])

    def spares(self) -> Iterator[Member]:
        """Of every member that has not failed, controls left out, a process in which nothing is measured any more.

        That is its second one; where there is none it is started, and may have failed. Its failures are not the
        member's.
        """
        asked = [member for member in self.members if member.ok and not member.launch.control]
        alone = [member for member in asked if not member.further]
        for index, member in enumerate(alone):
            member.further = [Member(member.launch, self._directory / f"spare-{index}")]
            self._send_start(member.further[0])
        for member in asked:
            if member in alone:
                self._await_start(member.further[0])
            yield member.further[0]

    def _asked(
        self, member: Member, message: Mapping[str, Any], what: str, more_seconds: float = 0.0
    ) -> dict[str, Any] | None:
        try:
            return self._request(member, message, more_seconds)
        except BackendFailure as failure:
            self._failed(member, what, failure)
            return None

    def statuses(self) -> tuple[Backend, ...]:
        """How every backend fared, controls left out."""
        for member in self.members:
            for one in member.all:
                if one.process is not None and one.process.condemned is not None:
                    self._end(member, "runtime_error", one.process.condemned)
        return tuple(
            Backend(m.launch.backend, m.launch.revision, m.launch.role, m.status, m.detail, m.start_seconds)
            for m in self.members
            if not m.launch.control
        )

    def _load(self, member: Member, case: Case) -> None:
        if member.loaded != self._place(case):
            self._loaded(member, case, self._request(member, self._load_message(case)))

    def _load_all(self, asked: Sequence[tuple[Member, Member]], case: Case) -> None:
        """Have processes, each after its member, read a case side by side."""

        def message(one: Member) -> dict[str, Any] | None:
            return None if one.loaded == self._place(case) else self._load_message(case)

        limits = (self.ending, self.limits.call_seconds, self.threads)
        for member, one, answer in side_by_side.answers(asked, message, *limits):
            try:
                self._loaded(one, case, answer())
            except BackendFailure as failure:
                self._failed(member, case.name, failure)

    def _warm_all(self, asked: Sequence[tuple[Member, Member]], case: Case, room: float = math.inf) -> float:
        """Have processes call their backend side by side, with so many bytes for all; returns the bytes left free."""
        message = {"do": "warm", "processes": self.processes}
        limits = (self.ending, self.limits.call_seconds, self.threads, room)
        free = math.inf
        with self.working:
            for member, one, answer in side_by_side.answers(asked, lambda one: message, *limits):
                try:
                    said = room_of(answer())
                    one.peak_bytes, free = said.peak, min(free, said.free)
                except BackendFailure as failure:
                    if isinstance(failure, SessionOver) or not one.alive:
                        self._failed(member, case.name, failure)
        return free

    def _place(self, case: Case) -> tuple[Path, bool]:
        """The file of a case, which is written where there is none yet, and what is asked of the backend beside it."""
        known = self._files.get(id(case))
        if known is None:
            tensors = case.tensors
            path = self._directory / f"case-{len(self._files)}.safetensors"
            exchange.save(path, {"q": tensors.q, "k": tensors.k, "v": tensors.v, "do": tensors.do})
            known = self._files[id(case)] = (case, path)
        return known[1], case.deterministic

    def _load_message(self, case: Case) -> dict[str, Any]:
        file, deterministic = self._place(case)
        return {
            "do": "load",
            "file": str(file),
            "causal": case.causal,
            "softmax_scale": case.softmax_scale,
            "deterministic": deterministic,
        }

    def _loaded(self, member: Member, case: Case, answer: Mapping[str, Any]) -> None:
        member.dtype = dtype_of(answer)
        member.loaded = self._place(case)

    def _rest(self, member: Member) -> None:
        """Have a process give back the memory that the others on the device may need."""
        message = {"do": "rest", "processes": self.processes}
        member.rested = self._request(member, message).get("rested") is True

    @property
    def processes(self) -> int:
        """How many there are, or are to be."""
        return sum(len(member.all) for member in self.members)

    def _timed(
        self, member: Member, repeat: int = 1, *, idle: bool = False, spin: bool = True
    ) -> tuple[list[StepSeconds], clock.Reading]:
        """Seconds of steps back to back; nothing but the steps is within the parent's reading.

        With `idle` everything is done but the call of the backend: there are no steps, and nothing is claimed.
        """
        begin = time.perf_counter()
        answer = self._request(member, {"do": "time", "repeat": repeat, "idle": idle, "spin": spin})
        elapsed = time.perf_counter() - begin
        steps = [] if idle else steps_of(answer, repeat)
        cover = cover_of(answer, repeat, COVER_LIMIT if spin else FLUSH_LIMIT)
        return steps, clock.Reading(elapsed, sum(step.forward_backward for step in steps), repeat, cover)

    def _audit_file(self, audit: Audit) -> Path:
        known = self._audits.get(id(audit))
        if known is None:
            path = self._directory / f"audit-{len(self._audits)}.safetensors"
            known = self._audits[id(audit)] = (audit, path)
            exchange.save(path, vars(audit.tensors))
        return known[1]

    def _audited(self, member: Member, audit: Audit) -> None:
        output = member.directory / "audited.safetensors"
        output.unlink(missing_ok=True)
        message = {"do": "audited", "batch": audit.batch, "kv_head": audit.kv_head, "file": str(output)}
        self._request(member, message)
        complaint = audit.complaint(_read(output))
        if complaint is not None:
            raise BackendFailure("wrong_result", complaint)

    def _compute(self, member: Member, case: Case) -> dict[str, Tensor]:
        output, inputs = (member.directory / f"{name}.safetensors" for name in ("results", "inputs"))
        self._load(member, case)
        for file in (output, inputs):
            file.unlink(missing_ok=True)
        self._request(member, {"do": "compute", "file": str(output), "inputs": str(inputs)})
        afterwards = _read(inputs)
        for name, tensor in vars(case.tensors).items():
            if name not in afterwards or not same_bits(afterwards[name], tensor.to(afterwards[name].dtype)):
                raise BackendFailure("wrong_result", f"changed its input {name}")
        results = self._results(member, case, output)
        for name, tensor in results.items():
            count = int((~torch.isfinite(tensor)).sum())
            if count:
                member.fail("wrong_result", f"{case.name}: {name} holds {count} NaN or Inf elements")
        return results

    def _request(self, member: Member, message: Mapping[str, Any], more_seconds: float = 0.0) -> dict[str, Any]:
        if (reason := self.ending.reason) is not None:
            raise SessionOver(reason)
        if member.process is None:
            raise BackendFailure("runtime_error", "has ended")
        with self.working if is_work(message) else contextlib.nullcontext():
            return member.process.request(message, self.limits.call_seconds + more_seconds)

    def _failed(self, member: Member, where: str, failure: BackendFailure) -> None:
        if isinstance(failure, SessionOver):
            self._leave(member, f"{failure.detail} before {self.suite} of {where} was done")
        else:
            self._end(member, failure.status, f"{where}: {failure.detail}")

    def _leave(self, member: Member, detail: str) -> None:
        member.unfinished = member.unfinished or member.ok
        self._end(member, "timeout", detail)

    def _end(self, member: Member, status: Status, detail: str) -> None:
        member.fail(status, detail)
        member.stop()

    def _results(self, member: Member, case: Case, path: Path) -> dict[str, Tensor]:
        results = _read(path)
        shapes = {"o": case.tensors.q, "dq": case.tensors.q, "dk": case.tensors.k, "dv": case.tensors.v}
        for name in TENSORS:
            got = results.get(name)
            if got is None or got.shape != shapes[name].shape or str(got.dtype) != f"torch.{member.dtype}":
                found = "missing" if got is None else f"{got.dtype} {tuple(got.shape)}"
                wanted = f"torch.{member.dtype} {tuple(shapes[name].shape)}"
                raise BackendFailure("wrong_result", f"{name} is {found} where {wanted} is expected")
        return results


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return exchange.load(path)
    except (OSError, exchange.MalformedFile) as error:
        raise BackendFailure("runtime_error", f"left no readable results: {error}") from error


def _clocks_disagree(claimed: float, elapsed: float) -> BackendFailure:
    return BackendFailure("wrong_result", f"its clock says {claimed:.4g} s, the ruler's {elapsed:.4g} s")
