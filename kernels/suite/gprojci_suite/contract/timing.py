"""What timing found: passes of attention, whole training steps, and the ratios between backends."""

from dataclasses import dataclass

from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.vocabulary import Agreement, Pass, Revision, StepModel

KERNEL_NAME_LIMIT = 200


# `pass` is a Python keyword: the attribute `pass_` is spelled `pass` in JSON.
@dataclass(frozen=True)
class Measurement:
    """Times of one backend in one case and pass."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    case: str
    """Shape or input set, mask and element type, such as `1x4x1024x64.causal.bfloat16`."""
    pass_: Pass
    """`forward`, `backward` or `forward_backward`."""
    seconds: tuple[float, ...]
    """Times of single calls, in seconds: on CUDA of the kernels, on a CPU launch and all."""
    median_seconds: float
    """Median of those times, in seconds."""
    tflops: float | None = None
    """FLOPs of attention in 10¹² per second, at the median: forward 4·B·H·Sq·Sk·D, causal half, backward 2.5 times."""
    ceiling_share: float | None = None
    """`tflops` over the matrix product's of the session, a fraction; null when that was not measured."""
    peak_memory_bytes: int | None = None
    """Most GPU memory allocated during the pass, inputs included, in bytes; null on a CPU."""
    host_seconds: float | None = None
    """Median time of the host to enqueue the call, in seconds, not part of `seconds`; null on a CPU."""
    graph_seconds: float | None = None
    """Median time of the pass replayed as a CUDA graph, in seconds; null where it was not measured."""
    graph_detail: str | None = None
    """Why a pass that is launched more slowly than it runs has no `graph_seconds`; null where it has, or needs none."""


@dataclass(frozen=True)
class Kernel:
    """One CUDA kernel of one call of one backend, as a profiler saw it in a process of its own."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    case: str
    """Shape or input set, mask and element type."""
    pass_: Pass
    """`forward` or `backward`."""
    kernel: str
    """Name of the kernel, its first 200 characters."""
    launches: int
    """How often the call launched it with these sizes."""
    seconds: float
    """Time of these launches together, in seconds, by the profiler's clock."""
    registers_per_thread: int | None
    """Registers of a thread; null when the profiler does not say."""
    shared_memory_bytes: int | None
    """Static and dynamic shared memory of a block, in bytes; null when the profiler does not say."""
    grid: tuple[int, ...]
    """Blocks along x, y and z; empty when the profiler does not say."""
    block: tuple[int, ...]
    """Threads of a block along x, y and z; empty when the profiler does not say."""
    spills: int | None = None
    """32-bit registers of a thread spilled to memory, as Triton says of its kernels; null for all others."""

    def check(self, path: str) -> None:
        """Raise ContractError for counts, times or names out of range."""
        if self.pass_ not in ("forward", "backward"):
            raise ContractError(f"{path}.pass", "must be forward or backward")
        if not 0 < len(self.kernel) <= KERNEL_NAME_LIMIT:
            raise ContractError(f"{path}.kernel", f"must have between 1 and {KERNEL_NAME_LIMIT} characters")
        if self.launches < 1:
            raise ContractError(f"{path}.launches", "must be at least 1")
        if not 0 <= self.seconds < float("inf"):
            raise ContractError(f"{path}.seconds", "must be a finite number, zero or above")
        for name in ("registers_per_thread", "shared_memory_bytes", "spills"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ContractError(f"{path}.{name}", "must not be negative")
        for name in ("grid", "block"):
            if len(getattr(self, name)) not in (0, 3):
                raise ContractError(f"{path}.{name}", "must have three sizes, or none")


@dataclass(frozen=True)
class Ceilings:
    """What the device did in the same session, in a process of its own: the fastest of several calls."""

    matmul_tflops: float
    """A square BF16 matrix product (8192 on CUDA, 1024 on a CPU), in 10¹² FLOPs per second."""
    copy_gb_s: float
    """A copy within the device's memory, read plus written, in 10⁹ bytes per second."""


@dataclass(frozen=True)
class Comparison:
    """Time of one backend over the time of another, from interleaved pairs."""

    backend: str
    """Backend in the numerator."""
    revision: Revision
    """Its revision."""
    against_backend: str
    """Backend in the denominator."""
    against_revision: Revision
    """Its revision."""
    case: str
    """Shape or input set, mask and element type; the model of a training step."""
    pass_: Pass
    """`forward`, `backward` or `forward_backward`; `step` for a training step."""
    pairs: int
    """Interleaved pairs measured."""
    ratio: float
    """The exponential of the median of the paired log ratios; with several processes, of the mean of their medians."""
    low: float
    """Lower end of the interval of the ratio: bootstrap; with several processes Student's t of their medians."""
    high: float
    """Upper end of the interval of the ratio."""
    confidence: float
    """Coverage of the interval."""
    ratios: tuple[float, ...]
    """Ratio of each pair."""
    control: bool
    """Whether this is the A/A control: the same revision in two processes, expected at 1."""
    void_pairs: int = 0
    """Pairs thrown away because the GPU was slowed down while they were measured."""
    processes: int = 1
    """Processes of each of the two that the pairs were spread over: ratio i was measured by process i mod processes."""

    def check(self, path: str) -> None:
        """Raise ContractError unless there is one ratio per pair and the interval is ordered."""
        if len(self.ratios) != self.pairs:
            raise ContractError(f"{path}.ratios", f"{len(self.ratios)} ratios for {self.pairs} pairs")
        if not 0 < self.low <= self.high:
            raise ContractError(f"{path}.low", "the interval must be positive and ordered")
        if self.void_pairs < 0:
            raise ContractError(f"{path}.void_pairs", "must not be negative")
        if not 1 <= self.processes <= max(1, self.pairs):
            raise ContractError(f"{path}.processes", "must lie between 1 and the number of pairs")


@dataclass(frozen=True)
class ClockCheck:
    """The clock of one process held against the ruler's over requests of many calls: the last ones that were read."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    case: str
    """Shape or input set, mask and element type."""
    process: int
    """Which of the processes that time the backend, from 0."""
    verdict: Agreement
    """Whether both clocks are the same; `unclear` when the machine was too busy to tell, or the calls too short."""
    calls: int
    """Calls of one request."""
    requests: int
    """Requests of so many calls."""
    child_seconds: float
    """Median time of a call by the process's clock, on CUDA its launch included, in seconds."""
    ruler_seconds: float
    """The same by the ruler's clock: that of the request, less flushes and the median empty request."""
    empties: int
    """Empty requests among them, which do everything but call the backend."""
    empty_low: float
    """Shortest empty request less its flushes, per call, in seconds."""
    empty_high: float
    """Longest empty request less its flushes, per call, in seconds."""
    check_seconds: float
    """How long the check took, in seconds."""

    def check(self, path: str) -> None:
        """Raise ContractError for counts and times out of range."""
        for name, least in (("process", 0), ("calls", 1), ("requests", 1), ("empties", 1)):
            if getattr(self, name) < least:
                raise ContractError(f"{path}.{name}", f"must be at least {least}")
        if not self.empty_low <= self.empty_high:
            raise ContractError(f"{path}.empty_low", "must not exceed empty_high")


@dataclass(frozen=True)
class Throughput:
    """Results of the throughput suite."""

    measurements: tuple[Measurement, ...]
    """One entry per backend, case and pass."""
    comparisons: tuple[Comparison, ...]
    """One entry per compared pair of backends, case and pass."""
    ceilings: Ceilings | None = None
    """What the device could do; null when it could not be measured."""
    kernels: tuple[Kernel, ...] = ()
    """CUDA kernels of each backend, revision and case, at most 32 of a pass; none on a CPU."""
    clock: tuple[ClockCheck, ...] = ()
    """One entry per process that times a backend and case; none in reports made before these were kept."""


@dataclass(frozen=True)
class StepMeasurement:
    """Training steps of one model with one backend as its attention."""

    backend: str
    """Name of the backend."""
    revision: Revision
    """Revision of the backend."""
    model: StepModel
    """Model trained."""
    seconds: tuple[float, ...]
    """Times of single steps (forward, loss, backward, optimiser), in seconds."""
    median_seconds: float
    """Median of those times, in seconds."""
    attention_share: float | None
    """1 − the step with no attention computed over the step, a fraction; null when not measured."""
    peak_memory_bytes: int | None
    """Most GPU memory the process had allocated during a step, in bytes; null on a CPU."""
    loss: float
    """Loss of the last of the first pairs' steps: the same number of steps, seed and data for every backend."""


@dataclass(frozen=True)
class Step:
    """Results of the step suite."""

    measurements: tuple[StepMeasurement, ...]
    """One entry per backend and model."""
    comparisons: tuple[Comparison, ...]
    """One entry per compared pair of backends and model; the case is the model, the pass `step`."""
