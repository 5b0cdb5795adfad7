"""What a run of the ruler found: the report, field by field."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gprojci_suite.contract import codec
from gprojci_suite.contract.determinism import Repeatability
from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.surface import Surface
from gprojci_suite.contract.symmetry import Symmetry
from gprojci_suite.contract.timing import Step, Throughput
from gprojci_suite.contract.vocabulary import Device, Moment, Network, Revision, Role, Status, SubjectRevision, Tensor

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Ruler:
    """The suite that measured."""

    version: str
    """Version of the `gprojci-suite` distribution."""
    revision: str
    """Git commit of the suite's checkout, or `package-<content hash>` outside one."""


@dataclass(frozen=True)
class Subject:
    """One backend under test, as built."""

    backend: str
    """Name of the backend in the manifest."""
    revision: SubjectRevision
    """`head` or `base`."""
    commit: str
    """Commit it was built from."""
    build_key: str
    """Key of the build in the worker's cache."""
    entry: str
    """`module:callable` that was imported."""
    build_seconds: float | None = None
    """How long its build took, in seconds; null for a local bench and where a kept build was used."""


@dataclass(frozen=True)
class GpuSample:
    """State of the GPU at one moment of the run."""

    moment: Moment
    """`before` or `after` the run, or `during` it: then the slowest clocks at work and every reason that was seen."""
    clocks: Mapping[str, float]
    """GPU clocks in MHz."""
    throttle_reasons: tuple[str, ...]
    """Reasons for which the GPU was slowed down."""
    foreign_processes: int | None
    """Processes on the GPU that are not the run's; null during it, and where they cannot be seen."""


@dataclass(frozen=True)
class Environment:
    """Facts of the machine and its software that a number depends on."""

    device: Device
    """Kind of device measured on."""
    device_name: str
    """Name of the device as its driver or kernel tells it."""
    hardware: str
    """Hardware class, a slug such as `cpu-x86-64` or `h200`; classes are never compared with each other."""
    platform: str
    """Operating system and architecture."""
    python: str
    """Version of Python that ran the ruler."""
    torch: str
    """Version of torch that computed the reference."""
    cuda: str | None
    """CUDA version torch was built with, or null."""
    driver: str | None
    """GPU driver version, or null."""
    cpu_count: int
    """CPUs this process may use."""
    threads: int
    """Threads of the measured processes."""
    memory_bytes: int
    """Memory of the machine, or of the GPU when measured on one, in bytes."""
    packages: Mapping[str, str]
    """Installed packages that matter, with their versions."""
    clocks: Mapping[str, float] | None
    """GPU clocks in MHz, or null on a CPU."""
    throttle_reasons: tuple[str, ...]
    """Reasons for which the GPU was slowed down."""
    network: Network
    """Whether the run had a network: `isolated`, `shared` or `unknown`."""
    samples: tuple[GpuSample, ...] | None = None
    """The GPU before, during and after the run; null on a CPU."""


@dataclass(frozen=True)
class Backend:
    """How one backend fared over the whole run."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """`head` or `base` for a subject, `ruler` for peers and the anchor."""
    role: Role
    """`subject`, `anchor` or `peer`."""
    status: Status
    """`ok`, or the kind of its first failure."""
    detail: str | None
    """Reason and log tail of the failure; null exactly when the status is `ok`."""
    start_seconds: float | None = None
    """Seconds its process took to import torch and the backend beside all others, by its clock; null if it did not."""

    def check(self, path: str) -> None:
        """Raise ContractError where status, detail, role and revision do not go together."""
        if self.status == "ok" and self.detail is not None:
            raise ContractError(f"{path}.detail", "must be null when the status is ok")
        if self.status != "ok" and not self.detail:
            raise ContractError(f"{path}.detail", f"missing although the status is {self.status}")
        if (self.role == "subject") != (self.revision != "ruler"):
            raise ContractError(f"{path}.revision", f"{self.revision} does not go with the role {self.role}")


@dataclass(frozen=True)
class Layer:
    """Shape of one layer of an input set."""

    layer: str
    """Name of the layer, such as `L1`."""
    batch: int
    """Batch size."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    seq_q: int
    """Queries per head."""
    seq_k: int
    """Keys per head."""
    head_dim: int
    """Elements per head."""


@dataclass(frozen=True)
class SliceStatistics:
    """What makes one slice of an input set easy or hard."""

    slice: str
    """Name of the slice, such as `L1.b0.h0`."""
    offset_spread: float
    """Norm of the mean key over the root mean square distance of the keys from it."""
    largest_logit: float
    """Largest absolute visible logit."""
    median_top_probability: float
    """Median over rows of the largest probability."""


@dataclass(frozen=True)
class Input:
    """One input set that was used."""

    input: str
    """Name of the input set."""
    content_hash: str
    """`sha256:` and the hash of the tensors' canonical content."""
    causal: bool
    """Whether the mask is causal (aligned to the bottom right)."""
    softmax_scale: float
    """Factor of the logits."""
    dtype: str
    """Element type of the inputs, such as `bfloat16`."""
    layers: tuple[Layer, ...]
    """Layers of the set."""
    statistics: tuple[SliceStatistics, ...]
    """One entry per slice."""
    provenance: Mapping[str, str]
    """Where the tensors come from."""


@dataclass(frozen=True)
class Slice:
    """Error of one tensor of one slice (layer, batch, head) of one backend against float64; errors are fractions."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    input: str
    """Name of the input set."""
    slice: str
    """Name of the slice, such as `L1.b0.h0`; for dk and dv the head is a key/value head."""
    layer: str
    """Layer of the slice."""
    batch: int
    """Batch index of the slice."""
    head: int
    """Head index of the slice."""
    tensor: Tensor
    """`o`, `dq`, `dk` or `dv`."""
    rel_err: float
    """Relative Frobenius error, a fraction."""
    scaled_abs_err: float
    """Frobenius error over the largest reference norm of that tensor over the slices of the input, a fraction."""
    p999: float
    """99.9th percentile of the element errors, each over the norm of its row of the reference, a fraction."""
    cosine: float
    """Cosine between result and reference."""
    reference_norm: float
    """Frobenius norm of the reference slice."""
    nonfinite: int
    """NaN and Inf elements of the result."""
    vanishing: bool
    """Whether the reference norm is below 1e-4 of the largest one: kept out of medians and gates."""
    p50: float | None = None
    """Median of the element errors that `p999` is the 99.9th percentile of, a fraction."""
    p90: float | None = None
    """Their 90th percentile, a fraction."""
    p99: float | None = None
    """Their 99th percentile, a fraction."""
    p100: float | None = None
    """The largest of them, a fraction."""
    norm_ratio: float | None = None
    """Frobenius norm of the result over that of the reference."""


@dataclass(frozen=True)
class AccuracySummary:
    """The slices of one backend, input set and tensor in one line; median and worst leave out vanishing slices."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    input: str
    """Name of the input set."""
    tensor: Tensor
    """`o`, `dq`, `dk` or `dv`."""
    median: float
    """Median relative error over the slices that do not vanish, a fraction; NaN when all vanish."""
    worst: float
    """Largest relative error over the slices that do not vanish, a fraction."""
    worst_slice: str
    """Slice of the largest relative error; empty when all vanish."""
    slices: int
    """Slices measured, vanishing ones included."""
    vanishing: int
    """Slices that vanish."""
    nonfinite: int
    """NaN and Inf elements over all slices."""
    spread: float | None
    """How far the median moved when the same revision ran again, |again/first − 1|; null where it ran once."""


@dataclass(frozen=True)
class Accuracy:
    """Results of the accuracy suite."""

    slices: tuple[Slice, ...]
    """One entry per backend, input set, slice and tensor."""
    summary: tuple[AccuracySummary, ...]
    """One entry per backend, input set and tensor."""


@dataclass(frozen=True)
class Report:
    """The whole of one run."""

    schema_version: int
    """Version of this format: 1 now. A service reads its own and those next to it."""
    created_at: str
    """When the run began, ISO 8601 in UTC."""
    duration_seconds: float
    """How long it took, in seconds."""
    seed: int
    """Seed of the run."""
    repro: str
    """Command that measures the same again."""
    ruler: Ruler
    """The suite that measured."""
    subjects: tuple[Subject, ...]
    """The backends under test, as built."""
    environment: Environment
    """Machine and software."""
    backends: tuple[Backend, ...]
    """How every requested backend fared."""
    inputs: tuple[Input, ...]
    """Input sets used."""
    accuracy: Accuracy | None
    """Results of the accuracy suite, or null when it did not run."""
    throughput: Throughput | None
    """Results of the throughput suite, or null when it did not run."""
    surface: Surface | None = None
    """Results of the surface suite, or null when it did not run."""
    symmetry: Symmetry | None = None
    """Results of the symmetry suite, or null when it did not run."""
    determinism: tuple[Repeatability, ...] | None = None
    """One entry per backend, case, tensor and request of the determinism suite, or null when it did not run."""
    step: Step | None = None
    """Results of the step suite, or null when it did not run."""
    working_seconds: float | None = None
    """Seconds of `duration_seconds` in which backends computed or were timed; null where older."""

    def peak_memory(self) -> dict[tuple[str, str, str], int]:
        """Peak GPU memory of forward and backward, and of training steps, in bytes, by backend, revision and case.

        The case of a training step is its model. What is unknown is left out: everything on a CPU.
        """
        passes = self.throughput.measurements if self.throughput else ()
        steps = self.step.measurements if self.step else ()
        found = [
            *(((m.backend, m.revision, m.case), m.peak_memory_bytes) for m in passes if m.pass_ == "forward_backward"),
            *(((m.backend, m.revision, m.model), m.peak_memory_bytes) for m in steps),
        ]
        return {key: peak for key, peak in found if peak}

    def check(self, path: str) -> None:
        """Raise ContractError where results name backends or inputs that the report does not list."""
        check_time(self.created_at, f"{path}.created_at")
        if self.working_seconds is not None and not 0 <= self.working_seconds <= self.duration_seconds:
            raise ContractError(f"{path}.working_seconds", "must lie between 0 and duration_seconds")
        status: dict[tuple[str, str], Status] = {}
        for index, entry in enumerate(self.backends):
            if (entry.backend, entry.revision) in status:
                raise ContractError(f"{path}.backends[{index}]", f"{entry.backend}@{entry.revision} is listed twice")
            status[entry.backend, entry.revision] = entry.status
        inputs = {entry.input for entry in self.inputs}

        def known(backend: str, revision: str, where: str) -> None:
            if (backend, revision) not in status:
                raise ContractError(where, f"{backend}@{revision} is not in backends")
            if status[backend, revision] in ("unsupported", "build_error"):
                raise ContractError(where, f"{backend}@{revision} cannot have results: {status[backend, revision]}")

        if self.accuracy is not None:
            for name in ("slices", "summary"):
                for index, item in enumerate(getattr(self.accuracy, name)):
                    where = f"{path}.accuracy.{name}[{index}]"
                    known(item.backend, item.revision, where)
                    if item.input not in inputs:
                        raise ContractError(f"{where}.input", f"{item.input!r} is not in inputs")
        if self.surface is not None:
            for index, point in enumerate(self.surface.points):
                known(point.backend, point.revision, f"{path}.surface.points[{index}]")
        if self.symmetry is not None:
            for name in ("responses", "summary"):
                for index, item in enumerate(getattr(self.symmetry, name)):
                    known(item.backend, item.revision, f"{path}.symmetry.{name}[{index}]")
        for index, repeated in enumerate(self.determinism or ()):
            known(repeated.backend, repeated.revision, f"{path}.determinism[{index}]")
        for index, kernel in enumerate(self.throughput.kernels if self.throughput is not None else ()):
            known(kernel.backend, kernel.revision, f"{path}.throughput.kernels[{index}]")
        for index, clock in enumerate(self.throughput.clock if self.throughput is not None else ()):
            known(clock.backend, clock.revision, f"{path}.throughput.clock[{index}]")
        for section, timed in (("throughput", self.throughput), ("step", self.step)):
            for index, measured in enumerate((*timed.measurements,) if timed is not None else ()):
                known(measured.backend, measured.revision, f"{path}.{section}.measurements[{index}]")
            for index, compared in enumerate(timed.comparisons if timed is not None else ()):
                where = f"{path}.{section}.comparisons[{index}]"
                known(compared.backend, compared.revision, where)
                known(compared.against_backend, compared.against_revision, where)

    @classmethod
    def from_json(cls, value: Any) -> "Report":
        """Decode parsed JSON; raises ContractError naming the JSON path.

        Versions next to this one are read too, so that services and workers can be upgraded one after the other. A
        version adds fields that have a default, or words: of the next one, fields unknown here are left out.
        """
        version = value.get("schema_version", SCHEMA_VERSION) if isinstance(value, dict) else SCHEMA_VERSION
        if type(version) is not int or not max(1, SCHEMA_VERSION - 1) <= version <= SCHEMA_VERSION + 1:
            raise ContractError(
                "$.schema_version", f"{version!r} cannot be read by a ruler or service of version {SCHEMA_VERSION}"
            )
        return codec.decode(cls, value, ignore_unknown=version > SCHEMA_VERSION)

    @classmethod
    def loads(cls, text: str) -> "Report":
        """Decode JSON text; raises ContractError naming the JSON path."""
        return cls.from_json(codec.loads(text))

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, without non-finite floats."""
        encoded: dict[str, Any] = codec.encode(self)
        return encoded

    def dumps(self) -> str:
        """The report as JSON text."""
        return codec.dumps(self.to_json(), indent=1)


def check_time(time: str, path: str) -> None:
    """Raise ContractError for what is no ISO 8601 time in UTC."""
    try:
        offset = datetime.fromisoformat(time).utcoffset()
    except ValueError as error:
        raise ContractError(path, f"{time!r} is no ISO 8601 time") from error
    if offset != timedelta(0):
        raise ContractError(path, "must be in UTC")
