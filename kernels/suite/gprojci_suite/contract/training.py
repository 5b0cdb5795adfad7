"""What `gprojci-suite train` found: models trained with equal seeds and data, differing in the attention backend."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from gprojci_suite.contract import codec
from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.report import Environment, Ruler, check_time
from gprojci_suite.contract.vocabulary import Positions, Projection, TrainingStatus

Kind = Literal["gprojci-training/1"]
KIND: Kind = "gprojci-training/1"
MAX_POINTS = 600
"""Most points of a curve. A longer one is thinned by joining as many neighbours as bring it to at most this."""
MAX_MEASURED = 200
"""Most measured steps of a run. Of more only every second, fourth, … is kept, and the last."""
REFERENCES = ("fp32", "fp32-fast")
"""Backends that the loss of all others is compared with: the first of them that was trained."""
FINISHED = ("completed", "diverged")
"""Statuses of runs that have come to their end: no step of theirs is missing."""
MAX_RUNS = 100
MAX_LAYERS = 100


@dataclass(frozen=True)
class TrainingModel:
    """The transformer that is trained: pre-norm blocks of causal attention and feed-forward layer, bytes as tokens."""

    layers: int
    """Blocks."""
    width: int
    """Elements of the residual stream."""
    heads: int
    """Heads of each layer; head_dim is width ÷ heads."""
    sequence: int
    """Tokens of one sequence."""
    positions: Positions
    """`learned` or `rotary`."""
    biases: tuple[Projection, ...]
    """Which of q, k and v have a bias."""
    qk_norm: bool = False
    """Whether q and k are divided by their root mean square (RMSNorm, learned gain)."""
    qk_clip: float | None = None
    """Largest logit above which QK-clip scales the weights of q and k of a head down; null without it."""
    softmax_temperature: float = 1.0
    """What the logits are divided by beside the root of head_dim."""
    parameters: int | None = None
    """Trained parameters; null where unknown."""
    compiled: bool = False
    """Whether all but attention and the optimiser ran under torch.compile."""
    key_bias_std: float = 0.0
    """Standard deviation of the elements of k's biases before the first step, one random vector per layer."""

    def check(self, path: str) -> None:
        """Raise ContractError for sizes that no model has."""
        for name in ("layers", "width", "heads", "sequence"):
            if getattr(self, name) < 1:
                raise ContractError(f"{path}.{name}", "must be at least 1")
        if self.width % (2 * self.heads):
            raise ContractError(f"{path}.width", "must be an even multiple of heads")
        if self.layers > MAX_LAYERS:
            raise ContractError(f"{path}.layers", f"at most {MAX_LAYERS}")
        if not 0 < self.softmax_temperature < math.inf:
            raise ContractError(f"{path}.softmax_temperature", "must be a finite number above zero")
        if not 0 <= self.key_bias_std < math.inf:
            raise ContractError(f"{path}.key_bias_std", "must be a finite number, zero or above")
        if self.key_bias_std and "k" not in self.biases:
            raise ContractError(f"{path}.key_bias_std", "needs k among the biases")
        if self.qk_clip is not None and not 0 < self.qk_clip < math.inf:
            raise ContractError(f"{path}.qk_clip", "must be a finite number above zero")


@dataclass(frozen=True)
class TrainingData:
    """What is learned."""

    name: str
    """`library` (sources of Python's standard library), `recall` (associative recall), or other text in words."""
    content_hash: str | None
    """`sha256:` and the hash of all bytes, or of the task's parameters; null where unknown."""
    batch: int
    """Sequences of one step."""
    size_bytes: int | None = None
    """Bytes of text; null for a synthetic task and where unknown."""


@dataclass(frozen=True)
class TrainingOptimizer:
    """Muon for the hidden matrices unless they too are left to AdamW, AdamW for everything else."""

    muon_rate: float | None
    """Learning rate of Muon; null where AdamW trains the hidden matrices too."""
    adamw_rate: float
    """Learning rate of AdamW."""
    bias_rate: float | None = None
    """Learning rate of AdamW for the biases of q, k and v, where it is one of its own."""
    momentum: float = 0.95
    """Momentum of Muon (Nesterov)."""
    weight_decay: float = 0.0
    """Decoupled weight decay of both."""
    warm_up: int = 0
    """Steps over which the rates rise linearly to their values; constant afterwards."""

    def check(self, path: str) -> None:
        """Raise ContractError for rates that are none."""
        for name in ("muon_rate", "adamw_rate", "bias_rate", "momentum", "weight_decay"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ContractError(f"{path}.{name}", "must be a finite number, zero or above")
        if self.warm_up < 0:
            raise ContractError(f"{path}.warm_up", "must not be below zero")


@dataclass(frozen=True)
class TrainingSetup:
    """All that the runs have in common."""

    model: TrainingModel
    """The model."""
    data: TrainingData
    """The data."""
    optimizer: TrainingOptimizer
    """The optimisers."""
    steps: int
    """Steps of a run that is completed."""
    measure_every: int
    """Steps between two measurements of the layers."""
    capture_threshold: float | None = None
    """Error of dq, a fraction, from which a run writes an input set; null where none was to be written."""

    def check(self, path: str) -> None:
        """Raise ContractError for numbers of steps that cannot be."""
        if self.steps < 1 or self.measure_every < 1 or self.data.batch < 1:
            raise ContractError(path, "steps, measure_every and batch must be at least 1")
        if self.capture_threshold is not None and not 0 < self.capture_threshold < math.inf:
            raise ContractError(f"{path}.capture_threshold", "must be a finite number above zero")


@dataclass(frozen=True)
class Curve:
    """Loss and gradient norm over all steps, at most 600 points; a point stands for the steps since the one before."""

    steps: tuple[int, ...]
    """Last step of each point, from 1."""
    loss: tuple[float, ...]
    """Mean training loss of the point's steps, in nats per token."""
    gradient_norm: tuple[float, ...]
    """Largest norm of all gradients together among the point's steps, before any optimiser."""
    step_seconds: tuple[float, ...] | None = None
    """Mean time of a step without measurements, in seconds; null where other processes shared the device."""

    def check(self, path: str) -> None:
        """Raise ContractError where columns have different lengths, or are too long."""
        _check_steps(self.steps, MAX_POINTS, path)
        _check_columns(self, len(self.steps), path)


@dataclass(frozen=True)
class LayerSeries:
    """One layer at the measured steps: columns of one value per entry of `measured_steps`, null where not measured.

    Errors are of the first sequence of the batch, against float64 from the same q, k, v and gradient of o. Heads whose
    reference is below 1e-4 of the largest norm over all heads of all layers vanish and are left out; NaN where all do.
    """

    layer: int
    """Number of the layer, from 0."""
    gradient_norm: tuple[float, ...] | None = None
    """Norm of the gradients of all the layer's weights."""
    gradient_norm_q: tuple[float, ...] | None = None
    """Norm of the gradient of the weights (and biases) of the projection to q."""
    gradient_norm_k: tuple[float, ...] | None = None
    """The same of k."""
    gradient_norm_v: tuple[float, ...] | None = None
    """The same of v."""
    key_offset_median: tuple[float, ...] | None = None
    """Norm of the mean key over the root mean square distance of the keys from it, median over the heads."""
    key_offset_worst: tuple[float, ...] | None = None
    """The same in the head where it is largest."""
    largest_logit: tuple[float, ...] | None = None
    """Largest absolute visible logit over the heads."""
    top_probability: tuple[float, ...] | None = None
    """Median over heads and rows of the largest probability of a row."""
    dq_error_median: tuple[float, ...] | None = None
    """Relative error of dq, a fraction, median over the heads."""
    dq_error_worst: tuple[float, ...] | None = None
    """The same in the head where it is largest."""
    dq_worst_head: tuple[int, ...] | None = None
    """Number of that head; −1 where all vanish."""
    dk_error_median: tuple[float, ...] | None = None
    """Relative error of dk, a fraction, median over the heads."""
    dk_error_worst: tuple[float, ...] | None = None
    """The same in the head where it is largest."""
    row_sum_leak: tuple[float, ...] | None = None
    """Norm of the part of dq's error that points along the mean key, over the norm of dq, largest over the heads."""
    symmetry_response: tuple[float, ...] | None = None
    """What `capture.watch` estimates without a reference: how far dq moves when the keys are shifted, largest head."""


@dataclass(frozen=True)
class TrainingCapture:
    """One input set that a run wrote when the error of dq crossed the threshold."""

    file: str
    """Name of the file."""
    content_hash: str
    """`sha256:` and the hash of the tensors' canonical content."""
    step: int
    """Step it was taken at."""
    layer: int
    """Layer it holds."""
    dq_error: float
    """Error of dq of its worst head at that step, a fraction."""


@dataclass(frozen=True)
class TrainingRun:
    """One backend with one seed."""

    backend: str
    """Name of the backend."""
    seed: int
    """Seed of weights and data."""
    status: TrainingStatus
    """`completed`; `diverged` when the loss was no finite number, or stayed above its start; else why it has no end."""
    detail: str | None
    """What happened; null exactly when the status is `completed`."""
    steps: int
    """Steps taken."""
    seconds: float
    """Time of these steps, measurements left out, in seconds."""
    side_by_side: int
    """Most training processes that shared the device, this one included; times count only where it is 1."""
    initial_weights: str | None
    """`sha256:` and the hash of all weights before the first step; equal for equal seeds; null where unknown."""
    final_loss: float | None
    """Mean loss of the last `final_steps` steps; null when no step was taken."""
    final_steps: int
    """Steps that `final_loss` is the mean of."""
    largest_gradient_norm: float | None
    """Largest norm of all gradients over all steps; null when no step was taken."""
    step_seconds: float | None
    """Median time of a step without measurements, in seconds; null where other processes shared the device."""
    curve: Curve
    """Loss and gradient norm."""
    measured_steps: tuple[int, ...]
    """Steps at which the layers were measured, at most 200; of more every second, fourth, … is kept, and the last."""
    layers: tuple[LayerSeries, ...]
    """One entry per layer."""
    captures: tuple[TrainingCapture, ...] = ()
    """Input sets that were written."""
    alarm_step: int | None = None
    """First measured step at which `capture.watch` would have warned; null if never, or where it did not watch."""
    revision: str | None = None
    """Commit of the checkout that the backend's code lies in, or a hash of its files where they differ from it; two of
    them where a run went on with other code. Null for a peer of the ruler, and where unknown."""

    @property
    def late_gradient_norm(self) -> float | None:
        """Largest norm of all gradients in the second half, NaN as infinity; None where there is no such point.

        The largest of all is mostly that of the first steps, and says nothing of what came later.
        """
        norms = zip(self.curve.steps, self.curve.gradient_norm, strict=True)
        late = [math.inf if math.isnan(norm) else norm for step, norm in norms if step > self.steps / 2]
        return max(late, default=None)

    @property
    def fast_step_seconds(self) -> float | None:
        """Time of a step in the fastest tenth of the run, in seconds; None where steps were not timed.

        The tenth percentile of the curve's times: what a step takes while nothing but the device holds it up. Host
        work of every step can make the median a tenth longer in one run and not in the next.
        """
        timed = sorted(value for value in self.curve.step_seconds or () if not math.isnan(value))
        return timed[(len(timed) - 1) // 10] if timed else None

    @property
    def final_dq_error(self) -> float | None:
        """Error of dq in the worst head of all layers at the last measured step, a fraction; None when not measured."""
        columns = [layer.dq_error_worst for layer in self.layers if layer.dq_error_worst]
        last = [column[-1] for column in columns if not math.isnan(column[-1])]
        return max(last, default=None)

    @property
    def largest_dq_error(self) -> float | None:
        """The same at the measured step where it is largest."""
        columns = [layer.dq_error_worst for layer in self.layers if layer.dq_error_worst]
        return max((error for column in columns for error in column if not math.isnan(error)), default=None)

    def check(self, path: str) -> None:
        """Raise ContractError where the fields do not go together."""
        if (self.status == "completed") != (self.detail is None):
            raise ContractError(f"{path}.detail", f"does not go with the status {self.status}")
        if self.side_by_side < 1:
            raise ContractError(f"{path}.side_by_side", "must be at least 1")
        if self.side_by_side > 1 and not (self.step_seconds is None and self.curve.step_seconds is None):
            raise ContractError(f"{path}.step_seconds", "must be null where processes shared the device")
        if (self.steps == 0) != (self.final_loss is None) or (self.steps == 0) != (self.largest_gradient_norm is None):
            raise ContractError(f"{path}.final_loss", f"does not go with {self.steps} steps")
        _check_steps(self.measured_steps, MAX_MEASURED, f"{path}.measured_steps")
        for name, steps in (("curve.steps", self.curve.steps), ("measured_steps", self.measured_steps)):
            if steps and steps[-1] > self.steps:
                raise ContractError(f"{path}.{name}", f"goes on after step {self.steps}, the run's last")
        if len(self.layers) > MAX_LAYERS:
            raise ContractError(f"{path}.layers", f"more than {MAX_LAYERS}")
        if len({layer.layer for layer in self.layers}) < len(self.layers):
            raise ContractError(f"{path}.layers", "a layer is there twice")
        for index, layer in enumerate(self.layers):
            _check_columns(layer, len(self.measured_steps), f"{path}.layers[{index}]")


@dataclass(frozen=True)
class TrainingReport:
    """Runs of one setup."""

    kind: Literal["gprojci-training/1"]
    """Which format this is."""
    name: str
    """What the setup is called, letters, digits, '.', '_' and '-'; reports of one name are one story."""
    created_at: str
    """When the first run began, ISO 8601 in UTC."""
    repro: str
    """Command that trains the same again; empty where none does."""
    ruler: Ruler | None
    """The suite that trained; null for runs of other software."""
    environment: Environment | None
    """Machine and software; null where unknown."""
    setup: TrainingSetup
    """All that the runs have in common."""
    runs: tuple[TrainingRun, ...]
    """One entry per backend and seed."""

    def check(self, path: str) -> None:
        """Raise ContractError for a wrong name or time, a run that is there twice, or seeds that do not match."""
        check_name(self.name, f"{path}.name")
        check_time(self.created_at, f"{path}.created_at")
        if len(self.runs) > MAX_RUNS:
            raise ContractError(f"{path}.runs", f"more than {MAX_RUNS}")
        seen: set[tuple[str, int]] = set()
        weights: dict[int, str] = {}
        for index, run in enumerate(self.runs):
            where = f"{path}.runs[{index}]"
            if (run.backend, run.seed) in seen:
                raise ContractError(where, f"{run.backend} with seed {run.seed} is there twice")
            seen.add((run.backend, run.seed))
            if run.status == "completed" and run.steps != self.setup.steps:
                raise ContractError(f"{where}.steps", f"{run.steps}, but a completed run has {self.setup.steps}")
            own = run.initial_weights
            if own is not None and weights.setdefault(run.seed, own) != own:
                raise ContractError(f"{where}.initial_weights", f"not those of another run with seed {run.seed}")

    @classmethod
    def from_json(cls, value: Any) -> "TrainingReport":
        """Decode parsed JSON; raises ContractError naming the JSON path."""
        return codec.decode(cls, value)

    @classmethod
    def loads(cls, text: str) -> "TrainingReport":
        """Decode JSON text; raises ContractError naming the JSON path."""
        return cls.from_json(codec.loads(text))

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, without non-finite floats."""
        encoded: dict[str, Any] = codec.encode(self)
        return encoded

    def dumps(self) -> str:
        """The report as JSON text."""
        return codec.dumps(self.to_json())


def reference(backends: Iterable[str]) -> str | None:
    """The FP32 backend that the others' losses are compared with; None where none was trained."""
    trained = set(backends)
    return next((name for name in REFERENCES if name in trained), None)


def above_reference(losses: Mapping[tuple[str, int], float]) -> dict[tuple[str, int], float]:
    """By how much final losses, by backend and seed, lie above the reference's of the same seed, where it has one."""
    against = reference(backend for backend, _ in losses)
    return {
        (backend, seed): loss - losses[against, seed]
        for (backend, seed), loss in losses.items()
        if against is not None and backend != against and (against, seed) in losses
    }


def is_training(value: Any) -> bool:
    """Whether parsed JSON says that it is a training report, well-formed or not."""
    return isinstance(value, Mapping) and value.get("kind") == KIND


def check_name(name: str, path: str) -> None:
    """Raise ContractError for what cannot name a setup, nor a file."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ContractError(path, f"must be letters, digits, '.', '_' and '-', at most 100, got {name!r}")


def _check_steps(steps: tuple[int, ...], most: int, path: str) -> None:
    if len(steps) > most:
        raise ContractError(path, f"{len(steps)} points, more than {most}")
    if any(later <= earlier for earlier, later in zip((0, *steps), steps, strict=False)):
        raise ContractError(path, "steps must rise from 1")


def _check_columns(series: Curve | LayerSeries, length: int, path: str) -> None:
    for field in fields(series):
        column = getattr(series, field.name)
        if isinstance(column, tuple) and len(column) != length:
            raise ContractError(f"{path}.{field.name}", f"{len(column)} values for {length} steps")
