"""What timing found: passes of attention, whole training steps, and the ratios between backends."""

from dataclasses import dataclass

from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.vocabulary import Pass, Revision, StepModel


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
    """Times of single calls, in seconds."""
    median_seconds: float
    """Median of those times, in seconds."""
    tflops: float | None = None
    """FLOPs of attention in 10¹² per second, at the median: forward 4·B·H·Sq·Sk·D, causal half, backward 2.5 times."""
    ceiling_share: float | None = None
    """`tflops` over the matrix product's of the session, a fraction; null when that was not measured."""
    peak_memory_bytes: int | None = None
    """Most GPU memory allocated during the pass, inputs included, in bytes; null on a CPU."""


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
    """Median ratio: the exponential of the median of the paired log ratios."""
    low: float
    """Lower end of the bootstrap interval of the ratio."""
    high: float
    """Upper end of the bootstrap interval of the ratio."""
    confidence: float
    """Coverage of the interval."""
    ratios: tuple[float, ...]
    """Ratio of each pair."""
    control: bool
    """Whether this is the A/A control: the same revision in two processes, expected at 1."""
    void_pairs: int = 0
    """Pairs thrown away because the GPU was slowed down while they were measured."""

    def check(self, path: str) -> None:
        """Raise ContractError unless there is one ratio per pair and the interval is ordered."""
        if len(self.ratios) != self.pairs:
            raise ContractError(f"{path}.ratios", f"{len(self.ratios)} ratios for {self.pairs} pairs")
        if not 0 < self.low <= self.high:
            raise ContractError(f"{path}.low", "the interval must be positive and ordered")
        if self.void_pairs < 0:
            raise ContractError(f"{path}.void_pairs", "must not be negative")


@dataclass(frozen=True)
class Throughput:
    """Results of the throughput suite."""

    measurements: tuple[Measurement, ...]
    """One entry per backend, case and pass."""
    comparisons: tuple[Comparison, ...]
    """One entry per compared pair of backends, case and pass."""
    ceilings: Ceilings | None = None
    """What the device could do; null when it could not be measured."""


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
