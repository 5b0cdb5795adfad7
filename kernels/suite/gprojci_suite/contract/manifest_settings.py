"""What a manifest `gprojci.toml` says: what to build, measure and demand of a repository under test."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gprojci_suite.contract.vocabulary import TENSORS

GATE_LIMITS: Mapping[str, str] = {
    **{f"{t}_error_ceiling": f"median relative error of {t} over slices that do not vanish" for t in TENSORS},
    **{f"{t}_worst_ceiling": f"relative error of {t} in the worst slice that does not vanish" for t in TENSORS},
    **{f"{t}_error_ratio": f"median relative error of {t}, head over base" for t in TENSORS},
    "dq_symmetry_ceiling": "median response of dq to a shift of all keys, over its norm",
    "kernel_time_increase": "forward and backward time, head over base, minus one",
    "kernel_overhead_ceiling": "forward and backward time, head over anchor, minus one",
    "step_overhead_increase": "training step time, head over base, minus one",
    "step_overhead_ceiling": "training step time, head over anchor, minus one",
    "peak_memory_increase": "peak GPU memory of forward and backward or of a training step, head over base, minus one",
    "peak_memory_overhead_ceiling": "the same memory, head over anchor, minus one",
    "spilled_registers_ceiling": "registers of a thread that the worst kernel spills to memory",
    "repeat_spread_ceiling": "largest relative difference between repeats of one call; 0 asks for the same bits",
}
"""Every limit a gate can set, with the quantity it bounds."""


@dataclass(frozen=True)
class Build:
    """How the commit is built."""

    path: str = "."
    """Directory, relative to the repository's root, that pip can install."""
    extras: tuple[str, ...] = ()
    """Extras to install with it."""
    isolation: bool = False
    """Whether pip builds it in an isolated build environment."""


@dataclass(frozen=True)
class BackendEntry:
    """One attention implementation of the repository."""

    entry: str
    """`module:callable` taking (q, k, v, *, causal, softmax_scale)."""


@dataclass(frozen=True)
class AccuracySettings:
    """What the accuracy suite measures."""

    inputs: tuple[str, ...] = ()
    """Input sets."""
    peers: tuple[str, ...] = ()
    """Peers measured beside the backends."""
    surface: bool = False
    """Whether the sweep over synthetic offsets and logits is measured too."""
    symmetry: bool = False
    """Whether the responses to shifts of keys and values are measured too."""
    determinism: bool = False
    """Whether bitwise repeatability is measured too."""
    shapes: tuple[str, ...] = ()
    """Shapes `batch x heads x sequence x head_dim` that symmetry and determinism take beside the inputs."""
    repeats: int = 5
    """How often determinism computes each case."""


@dataclass(frozen=True)
class ThroughputSettings:
    """What the throughput suite measures."""

    anchor: str | None = None
    """Peer that every timing is divided by."""
    shapes: tuple[str, ...] = ()
    """Shapes `batch x heads x sequence x head_dim`, or names of input sets."""
    pairs: int = 20
    """Interleaved pairs measured first."""
    max_pairs: int = 80
    """Most pairs measured when the interval does not decide."""
    peers: tuple[str, ...] = ()
    """Peers timed beside the backends."""
    step_models: tuple[str, ...] = ()
    """Models whose training step is timed."""
    processes: int | None = None
    """Processes of each compared backend that the pairs are spread over; null means 1 on a CPU and 5 on CUDA."""


@dataclass(frozen=True)
class GateRule:
    """Limits of some backends, cases or hardware classes: one `[[gate.rules]]`.

    A filter that is left out takes everything; a name may hold `*`, `?` and `[…]` as in a shell. A rule that names
    inputs, shapes or step models holds for those cases alone.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    """Limit by key of GATE_LIMITS; a rule without any says of the limits there are whether they decide."""
    backends: tuple[str, ...] | None = None
    """Backends it is for."""
    inputs: tuple[str, ...] | None = None
    """Input sets it is for."""
    shapes: tuple[str, ...] | None = None
    """Shapes it is for."""
    step_models: tuple[str, ...] | None = None
    """Models whose training step it is for."""
    hardware: tuple[str, ...] | None = None
    """Hardware classes it is for."""
    required: bool | None = None
    """Whether its limits decide; null leaves that to `informative`."""
    line: int = 1
    """Line of the manifest at which it begins."""
    expected: bool = True
    """Whether the manifest has a case on this kind of device that it is for."""

    @property
    def names_cases(self) -> bool:
        """Whether it is for some cases only."""
        return any(names is not None for names in (self.inputs, self.shapes, self.step_models))


@dataclass(frozen=True)
class GateSettings:
    """What a head commit must satisfy; a missing limit is not gated."""

    limits: Mapping[str, float] = field(default_factory=dict)
    """Limit by key of GATE_LIMITS."""
    informative: tuple[str, ...] = ()
    """Limits that are reported but do not decide."""
    backends: tuple[str, ...] | None = None
    """Backends gated; null means all of the manifest."""
    inputs: tuple[str, ...] | None = None
    """Input sets gated; null means all that were measured."""
    rules: tuple[GateRule, ...] = ()
    """Limits of some backends, cases or hardware classes; the last that fits goes before all others."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of the manifest that sets each of `limits`."""

    def every_limit(self, *keys: str) -> list[float]:
        """All that the gate sets for these keys, by itself or by a rule."""
        sets = [self.limits, *(rule.limits for rule in self.rules)]
        return [limits[key] for limits in sets for key in keys if key in limits]


@dataclass(frozen=True)
class Manifest:
    """A whole manifest as it holds on one kind of device."""

    backends: Mapping[str, BackendEntry]
    """Backends by name."""
    build: Build = field(default_factory=Build)
    """How the commit is built."""
    accuracy: AccuracySettings = field(default_factory=AccuracySettings)
    """What the accuracy suite measures."""
    throughput: ThroughputSettings = field(default_factory=ThroughputSettings)
    """What the throughput suite measures."""
    gate: GateSettings = field(default_factory=GateSettings)
    """What is demanded."""
