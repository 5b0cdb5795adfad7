"""What a worker asks of the ruler: the subjects, the peers, the inputs and the limits of one run."""

from dataclasses import dataclass, field
from typing import Any, Literal

from gprojci_suite.contract import codec
from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.vocabulary import MAX_PROCESSES, Device, StepModel, SubjectRevision, Suite


@dataclass(frozen=True)
class SubjectSpec:
    """One backend of the commit under test, or of its base, in a built environment of its own."""

    backend: str
    """Name of the backend in the manifest."""
    revision: SubjectRevision
    """Which of the two commits it was built from."""
    entry: str
    """`module:callable` to import in that environment."""
    python: str
    """Path of the environment's Python interpreter."""
    site: str
    """Directory under which the imported module's file must lie; empty for a local bench, which takes any."""
    commit: str
    """Commit it was built from."""
    build_key: str
    """Key of the build in the worker's cache."""
    build_seconds: float | None = None
    """How long the build took, in seconds; null for a local bench and where a kept build is used."""

    def check(self, path: str) -> None:
        """Raise ContractError unless `entry` has the form `module:callable`."""
        module, colon, name = self.entry.partition(":")
        if not (colon and module and name):
            raise ContractError(f"{path}.entry", f"{self.entry!r} is not of the form module:callable")
        if self.build_seconds is not None and not 0 <= self.build_seconds < float("inf"):
            raise ContractError(f"{path}.build_seconds", "must be a finite number, zero or above")


@dataclass(frozen=True)
class ThroughputSpec:
    """What is timed and how surely."""

    shapes: tuple[str, ...]
    """Shapes `batch x heads x sequence x head_dim` such as `1x4x1024x64`, or names of input sets."""
    causal: bool = True
    """Mask of the shapes; input sets bring their own."""
    pairs: int = 20
    """Interleaved pairs measured first."""
    max_pairs: int = 80
    """Most pairs measured when the interval does not decide."""
    confidence: float = 0.95
    """Coverage of the bootstrap interval."""
    margin: float = 0.10
    """Ratio minus one against which the interval must decide."""
    step_models: tuple[StepModel, ...] = ()
    """Models whose training step the step suite times."""
    step_margin: float | None = None
    """Ratio minus one against which the interval of a step must decide; `margin` when null."""
    processes: int = 1
    """Processes of each compared backend that the pairs are spread over, 1 to 16 and at most `pairs`."""

    def check(self, path: str) -> None:
        """Raise ContractError for counts or probabilities out of range."""
        if self.pairs < 2:
            raise ContractError(f"{path}.pairs", "at least 2 pairs are needed")
        if self.max_pairs < self.pairs:
            raise ContractError(f"{path}.max_pairs", "must not be below pairs")
        if not 0 < self.confidence < 1:
            raise ContractError(f"{path}.confidence", "must lie between 0 and 1")
        if not 0 <= self.margin < float("inf"):
            raise ContractError(f"{path}.margin", "must be a finite number, zero or above")
        if self.step_margin is not None and not 0 <= self.step_margin < float("inf"):
            raise ContractError(f"{path}.step_margin", "must be a finite number, zero or above")
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise ContractError(f"{path}.processes", f"must lie between 1 and {MAX_PROCESSES}")
        if self.shapes and self.processes > self.pairs:
            raise ContractError(f"{path}.processes", "must not be above pairs: each process measures at least one")


@dataclass(frozen=True)
class InvariantsSpec:
    """What the symmetry and determinism suites take beside the input sets, and how often they repeat."""

    shapes: tuple[str, ...] = ()
    """Shapes `batch x heads x sequence x head_dim`, also too long for a float64 reference."""
    causal: bool = True
    """Mask of the shapes; input sets bring their own."""
    repeats: int = 5
    """How often the determinism suite computes each case."""

    def check(self, path: str) -> None:
        """Raise ContractError for fewer than two repeats."""
        if self.repeats < 2:
            raise ContractError(f"{path}.repeats", "at least 2 repeats are needed")


@dataclass(frozen=True)
class LimitsSpec:
    """What one backend, and the session as a whole, may take before it is stopped."""

    call_seconds: float = 120.0
    """Longest single call of a backend, in seconds."""
    start_seconds: float = 120.0
    """Longest start of a backend's process, in seconds."""
    output_bytes: int = 10**9
    """Most that a backend's process and its descendants may print together, in bytes."""
    file_bytes: int = 20 * 10**9
    """Largest single file that a process may write, its results included, in bytes."""
    processes: int = 1024
    """Most processes at a time, the backend's own included."""
    threads: int = 8192
    """Most threads at a time, of all these processes together."""
    session_seconds: float | None = None
    """Seconds after which the session ends and reports what it has; what was unfinished is `timeout`. Null for none."""

    def check(self, path: str) -> None:
        """Raise ContractError unless all are positive and the system can hold them."""
        if self.session_seconds is not None and not 0 < self.session_seconds < float("inf"):
            raise ContractError(f"{path}.session_seconds", "must be a finite number above zero, or null")
        for name in ("call_seconds", "start_seconds", "output_bytes", "file_bytes", "processes", "threads"):
            if not 0 < getattr(self, name) < 2**63:
                raise ContractError(f"{path}.{name}", "must be a finite number above zero and below 2**63")


@dataclass(frozen=True)
class RunSpec:
    """One run of `gprojci-suite run SPEC REPORT`."""

    schema_version: Literal[1]
    """Version of this format."""
    device: Device
    """Kind of device to measure on."""
    seed: int
    """Seed of the synthetic inputs, of the order within pairs and of the bootstrap."""
    suites: tuple[Suite, ...]
    """Which suites run."""
    subjects: tuple[SubjectSpec, ...]
    """Backends built from head and base."""
    peers: tuple[str, ...]
    """Peers measured in the same session."""
    anchor: str | None
    """Peer that every timing is divided by."""
    inputs: tuple[str, ...]
    """Input sets of the accuracy suite, by name, file path or content hash."""
    input_directory: str | None = None
    """Directory with further input sets, found there by name or content hash."""
    throughput: ThroughputSpec | None = None
    """Settings of the throughput and step suites; needed when one of them runs."""
    invariants: InvariantsSpec = field(default_factory=InvariantsSpec)
    """Settings of the symmetry and determinism suites."""
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    """Limits of each backend on time, output, files and processes, and of the session on time."""

    def check(self, path: str) -> None:
        """Raise ContractError where fields contradict each other."""
        if not self.suites:
            raise ContractError(f"{path}.suites", "at least one suite is needed")
        if "throughput" in self.suites and self.throughput is None:
            raise ContractError(f"{path}.throughput", "missing although the throughput suite runs")
        if "step" in self.suites and not (self.throughput and self.throughput.step_models):
            raise ContractError(f"{path}.throughput.step_models", "at least one model is needed by the step suite")
        if "accuracy" in self.suites and not self.inputs:
            raise ContractError(f"{path}.inputs", "at least one input set is needed by the accuracy suite")
        for suite in ("symmetry", "determinism"):
            if suite in self.suites and not (self.inputs or self.invariants.shapes):
                raise ContractError(f"{path}.inputs", f"an input set, or a shape, is needed by the {suite} suite")
        seen: set[tuple[str, str]] = set()
        for index, subject in enumerate(self.subjects):
            if (subject.backend, subject.revision) in seen:
                name = f"{subject.backend}@{subject.revision}"
                raise ContractError(f"{path}.subjects[{index}]", f"{name} is listed twice")
            seen.add((subject.backend, subject.revision))

    @classmethod
    def from_json(cls, value: Any) -> "RunSpec":
        """Decode parsed JSON; raises ContractError."""
        return codec.decode(cls, value)

    @classmethod
    def loads(cls, text: str) -> "RunSpec":
        """Decode JSON text; raises ContractError."""
        return cls.from_json(codec.loads(text))

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON values."""
        encoded: dict[str, Any] = codec.encode(self)
        return encoded

    def dumps(self) -> str:
        """The spec as JSON text."""
        return codec.dumps(self.to_json(), indent=1)
