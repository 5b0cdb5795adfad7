"""All backends of one run, each in its own process, measured in turn; a failure ends that backend only."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from gprojci_suite import exchange
from gprojci_suite.contract.report import Backend
from gprojci_suite.contract.spec import LimitsSpec
from gprojci_suite.contract.vocabulary import TENSORS, Device, Revision, Role, Status
from gprojci_suite.inputs import LayerTensors
from gprojci_suite.inputs.sets import DTYPES
from gprojci_suite.process import BackendFailure, BackendProcess, available_threads

CLOCK_SLACK = 0.05
CLOCK_FACTOR = 4.0


@dataclass(frozen=True)
class Launch:
    """How one backend process is started: a peer of the ruler by name, or a subject by `entry`.

    Attributes:
        backend: name in the report.
        revision: head, base or ruler.
        role: subject, anchor or peer.
        python: interpreter.
        entry: `module:callable` of a subject; None for a peer.
        site: where the subject's module must lie; empty for anywhere.
        path: put first on the module search path; None for nothing.
        control: a second process of a head, for the A/A control.
    """

    backend: str
    revision: Revision
    role: Role
    python: str
    entry: str | None = None
    site: str = ""
    path: str | None = None
    control: bool = False

    @property
    def label(self) -> str:
        """Name for people: `gproj@head`, `fa3@ruler`."""
        return f"{self.backend}@{self.revision}" + (" (control)" if self.control else "")


@dataclass(frozen=True)
class Case:
    """Tensors that backends compute or are timed on."""

    name: str
    tensors: LayerTensors
    causal: bool
    softmax_scale: float

    def shape(self) -> dict[str, Any]:
        """The fields of `peers.Case`."""
        batch, heads, seq_q, head_dim = self.tensors.q.shape
        kv_heads, seq_k = self.tensors.k.shape[1], self.tensors.k.shape[2]
        sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq_q": seq_q, "seq_k": seq_k}
        return {**sizes, "head_dim": head_dim, "causal": self.causal, "dtype": DTYPES[self.tensors.q.dtype]}


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of one forward and one backward pass."""

    forward: float
    backward: float

    @property
    def forward_backward(self) -> float:
        """Both passes together."""
        return self.forward + self.backward


class Member:
    """One backend of the session: its process, and its first failure if it has one."""

    def __init__(self, launch: Launch, directory: Path) -> None:
        self.launch = launch
        self.directory = directory
        self.process: BackendProcess | None = None
        self.status: Status = "ok"
        self.detail: str | None = None
        self.loaded: Path | None = None
        self.dtype = ""

    @property
    def ok(self) -> bool:
        """Whether nothing has failed so far."""
        return self.status == "ok"

    def fail(self, status: Status, detail: str) -> None:
        """Keep the first failure."""
        if self.ok:
            self.status, self.detail = status, detail

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.close()
            self.process = None


class Session:
    """Context manager that owns the processes and a private directory for the tensors between them."""

    def __init__(self, launches: Sequence[Launch], device: Device, limits: LimitsSpec) -> None:
        self.device = device
        self.limits = limits
        self.threads = available_threads()
        self._directory = Path(tempfile.mkdtemp(prefix="gprojci-session-"))
        self._files: dict[int, tuple[Case, Path]] = {}
        self.members = [Member(launch, self._directory / str(index)) for index, launch in enumerate(launches)]

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> Iterator[Member]:
        """Start all backends side by side; yields each once it is ready or has failed."""
        for member in self.members:
            launch = member.launch
            member.directory.mkdir()
            try:
                member.process = BackendProcess(launch.python, member.directory, self.threads)
            except BackendFailure as failure:
                member.fail(failure.status, failure.detail)
                continue
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
        for member in self.members:
            if member.process is not None:
                try:
                    member.process.receive(self.limits.start_seconds)
                except BackendFailure as failure:
                    # A subject that dies while it is imported was not built right.
                    subject = member.launch.role == "subject" and failure.status == "runtime_error"
                    self._end(member, "build_error" if subject else failure.status, failure.detail)
            yield member

    def refuse_unsupported(self, cases: Sequence[Case]) -> None:
        """Mark as unsupported every backend that says it cannot compute one of the cases."""
        for member in self.members:
            for case in cases:
                if member.ok:
                    try:
                        self._request(member, {"do": "supported", "case": case.shape()})
                    except BackendFailure as failure:
                        self._end(member, failure.status, f"{case.name}: {failure.detail}")

    def compute(self, member: Member, case: Case) -> dict[str, Tensor] | None:
        """o, dq, dk and dv of a case, or None when the backend failed; NaN and Inf are marked but returned."""
        output = member.directory / "results.safetensors"
        try:
            self._load(member, case)
            output.unlink(missing_ok=True)
            self._request(member, {"do": "compute", "file": str(output)})
            results = self._results(member, case, output)
        except BackendFailure as failure:
            self._end(member, failure.status, f"{case.name}: {failure.detail}")
            return None
        for name, tensor in results.items():
            count = int((~torch.isfinite(tensor)).sum())
            if count:
                member.fail("wrong_result", f"{case.name}: {name} holds {count} NaN or Inf elements")
        return results

    def time(self, member: Member, case: Case, repeat: int = 1) -> list[StepSeconds] | None:
        """Seconds of `repeat` steps, or None when the backend failed or its clock disagrees with the parent's.

        What the child claims must fit into what the parent saw go by; over many repeats it must also fill it.
        """
        try:
            self._load(member, case)
            begin = time.perf_counter()
            answer = self._request(member, {"do": "time", "repeat": repeat})
            elapsed = time.perf_counter() - begin
            steps = _steps(answer, repeat)
            claimed = sum(step.forward_backward for step in steps)
            if claimed > elapsed or (repeat > 1 and elapsed > CLOCK_FACTOR * claimed + CLOCK_SLACK):
                raise BackendFailure("wrong_result", f"its clock says {claimed:.4g} s, the ruler's {elapsed:.4g} s")
        except BackendFailure as failure:
            self._end(member, failure.status, f"{case.name}: {failure.detail}")
            return None
        return steps

    def statuses(self) -> tuple[Backend, ...]:
        """How every backend fared, controls left out."""
        return tuple(
            Backend(m.launch.backend, m.launch.revision, m.launch.role, m.status, m.detail)
            for m in self.members
            if not m.launch.control
        )

    def _load(self, member: Member, case: Case) -> None:
        known = self._files.get(id(case))
        if known is None:
            tensors = case.tensors
            path = self._directory / f"case-{len(self._files)}.safetensors"
            exchange.save(path, {"q": tensors.q, "k": tensors.k, "v": tensors.v, "do": tensors.do})
            known = self._files[id(case)] = (case, path)
        if member.loaded != known[1]:
            message = {"do": "load", "file": str(known[1]), "causal": case.causal, "softmax_scale": case.softmax_scale}
            member.dtype = str(self._request(member, message)["dtype"])
            member.loaded = known[1]

    def _request(self, member: Member, message: Mapping[str, Any]) -> dict[str, Any]:
        if member.process is None:
            raise BackendFailure("runtime_error", "has ended")
        return member.process.request(message, self.limits.call_seconds)

    def _end(self, member: Member, status: Status, detail: str) -> None:
        member.fail(status, detail)
        member.stop()

    def _results(self, member: Member, case: Case, path: Path) -> dict[str, Tensor]:
        try:
            results = exchange.load(path)
        except (OSError, exchange.MalformedFile) as error:
            raise BackendFailure("runtime_error", f"left no readable results: {error}") from error
        shapes = {"o": case.tensors.q, "dq": case.tensors.q, "dk": case.tensors.k, "dv": case.tensors.v}
        for name in TENSORS:
            got = results.get(name)
            if got is None or got.shape != shapes[name].shape or str(got.dtype) != f"torch.{member.dtype}":
                found = "missing" if got is None else f"{got.dtype} {tuple(got.shape)}"
                wanted = f"torch.{member.dtype} {tuple(shapes[name].shape)}"
                raise BackendFailure("wrong_result", f"{name} is {found} where {wanted} is expected")
        return results


def control_of(launch: Launch) -> Launch:
    """A second process of the same backend."""
    return replace(launch, control=True)


def _steps(answer: Mapping[str, Any], repeat: int) -> list[StepSeconds]:
    forward, backward = answer.get("forward"), answer.get("backward")
    if not (isinstance(forward, list) and isinstance(backward, list) and len(forward) == len(backward) == repeat):
        raise BackendFailure("runtime_error", "wrote into the channel to its parent")
    if not all(isinstance(seconds, float) and 0 < seconds < float("inf") for seconds in (*forward, *backward)):
        raise BackendFailure("wrong_result", "its clock stands still or runs backwards")
    return [StepSeconds(a, b) for a, b in zip(forward, backward, strict=True)]
