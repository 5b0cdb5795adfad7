"""One run: one backend with one seed, from its first or its last saved step to its end, in a process of its own."""

import contextlib
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gprojci_suite.capture import selection
from gprojci_suite.capture.response import WARN_AT
from gprojci_suite.capture.watched_call import WatchedCall
from gprojci_suite.contract.training import (
    MAX_POINTS,
    Curve,
    TrainingCapture,
    TrainingRun,
    TrainingSetup,
)
from gprojci_suite.contract.vocabulary import Device, TrainingStatus
from gprojci_suite.ending import Ending
from gprojci_suite.inputs import InputError, InputSet, LayerTensors
from gprojci_suite.readable import percent
from gprojci_suite.training import data, files, measurement
from gprojci_suite.training.backend import BackendAttention
from gprojci_suite.training.model import Block, Transformer, parts
from gprojci_suite.training.optimizers import Optimizers, clip_logits
from gprojci_suite.training.series import Series

CLOCK = time.perf_counter
NO_END = "no end was reported: killed, or still training"
BEGINNING, RECENT, RISE = 10, 50, 0.5
"""Diverged is a mean loss of the RECENT steps that lies RISE nats above the mean of the BEGINNING ones."""
MOST_CAPTURES = 3
UNWATCHED_STEPS = 8
"""Steps that a GPU is given at least before it is waited for, which leaves it idle while the next is launched."""


@dataclass(frozen=True)
class RunSettings:
    """What the process of a run is told."""

    name: str
    setup: TrainingSetup
    backend: str
    entry: str | None
    seed: int
    device: Device
    folder: str
    captures: str
    side_by_side: int
    threads: int
    seconds: float | None
    checkpoint_every: int


def not_trained(backend: str, seed: int, status: TrainingStatus, detail: str) -> TrainingRun:
    """A run that took no step."""
    return TrainingRun(
        backend=backend,
        seed=seed,
        status=status,
        detail=detail,
        steps=0,
        seconds=0.0,
        side_by_side=1,
        initial_weights=None,
        final_loss=None,
        final_steps=0,
        largest_gradient_norm=None,
        step_seconds=None,
        curve=Curve((), (), ()),
        measured_steps=(),
        layers=(),
    )


class Run:
    """A model in training. `train` goes on from the folder's checkpoint where there is one.

    Raises:
        Refused: the backend cannot be loaded, or does not compute this.
    """

    def __init__(self, settings: RunSettings, say: Callable[[str], None]) -> None:
        self.settings, self.setup, self.say = settings, settings.setup, say
        self.folder = Path(settings.folder)
        self.device = settings.device
        model, batch = self.setup.model, self.setup.data.batch
        self.attention = BackendAttention(settings.backend, settings.entry, model, batch, self.device)
        self.data = data.load(self.setup.data.name)
        self.model = Transformer(model, settings.seed)
        self.initial_weights = self.model.weights_hash()
        self.model.to(self.device)
        self.parts = parts(self.device, model.compiled)
        self.optimizers = Optimizers(self.model, self.setup.optimizer)
        self.series = Series()
        saved = files.load_checkpoint(self.folder, self.device)
        if saved is not None:
            self.model.load_state_dict(saved["model"])
            self.optimizers.restore(saved["optimizers"])
            self.series = Series.restored(saved["series"])
        self.series.computed_by(self.attention.revision)
        self.series.side_by_side = max(self.series.side_by_side, settings.side_by_side)
        self._waiting: list[Tensor] = []
        self._begin = math.nan
        """When the steps that wait began; NaN where they are not to be timed."""

    def train(self, ending: Ending) -> TrainingRun:
        """Train until the last step, until it diverges, or until `ending`; the folder holds the result as well."""
        width = max(UNWATCHED_STEPS, math.ceil(self.setup.steps / MAX_POINTS))
        first = len(self.series.losses) + 1
        for step in range(first, self.setup.steps + 1):
            if ending.reason is not None:
                return self._end(self._caught_up() or ("ended_early", ending.reason))
            measured = step % self.setup.measure_every == 0 or step == self.setup.steps
            if measured:
                if (diverged := self._caught_up()) is not None:
                    return self._end(diverged)
                self._begin = math.nan
            if step == first:
                self._first_step(step, measured)
            else:
                self._step(step, measured)
            saved = step % self.settings.checkpoint_every == 0
            due = measured or saved or step % width == 0
            if due and (diverged := self._caught_up()) is not None:
                return self._end(diverged)
            if saved:
                self._save()
        return self._end(None)

    def broken_off(self, status: TrainingStatus, detail: str) -> TrainingRun:
        """The run as an exception left it: `failed` as far as its losses can still be had, `status` where none came."""
        with contextlib.suppress(Exception):  # Of a GPU that has failed nothing can.
            self._flush()
        self.series.end_with_losses()
        if not self.series.losses:
            return not_trained(self.settings.backend, self.settings.seed, status, detail)
        return self.found("failed", detail)

    def found(self, status: TrainingStatus, detail: str | None) -> TrainingRun:
        """The run as it stands."""
        series = self.series
        loss, final_steps = series.final_loss()
        measured, layers = series.layers()
        finite = [norm for norm in series.norms if not math.isnan(norm)]
        return TrainingRun(
            backend=self.settings.backend,
            seed=self.settings.seed,
            status=status,
            detail=detail,
            steps=len(series.losses),
            seconds=series.elapsed,
            side_by_side=series.side_by_side,
            initial_weights=self.initial_weights,
            final_loss=loss,
            final_steps=final_steps,
            largest_gradient_norm=max(finite, default=math.nan) if series.norms else None,
            step_seconds=series.step_seconds(),
            curve=series.curve(self.setup.steps),
            measured_steps=measured,
            layers=layers,
            captures=tuple(series.captures),
            alarm_step=series.alarm_step,
            revision=", ".join(series.revisions) or None,
        )

    def _first_step(self, step: int, measured: bool) -> None:
        """The process's first, which is not timed: kernels are compiled in it, for minutes on a busy machine."""
        compiles = self.setup.model.compiled or self.device == "cuda"
        self.say(f"step {step}/{self.setup.steps} under way{', compiling' if compiles else ''}")
        begin = CLOCK()
        self._step(step, measured)
        self._flush()
        self._begin = math.nan
        self.say(f"step {step}/{self.setup.steps} took {CLOCK() - begin:.1f} s")

    def _step(self, step: int, measured: bool) -> None:
        sizes = (self.setup.data.batch, self.setup.model.sequence)
        tokens, targets = (self._moved(part) for part in self.data.batch(self.settings.seed, step, *sizes))
        clip = self.setup.model.qk_clip
        self.attention.seen = {} if measured or clip is not None else None
        self.optimizers.zero_grad()
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.model(tokens, targets, self.attention, self.parts)
        torch.autograd.backward(loss)
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        self._waiting.append(torch.stack((loss.detach().float(), torch.nn.utils.get_total_norm(gradients))))
        if measured:
            self._measure(step)
        self.optimizers.step(step)
        if clip is not None:
            self._clip(clip)

    def _moved(self, part: Tensor) -> Tensor:
        """A batch on the device. A copy from memory that is not pinned may wait for the GPU, which then idles."""
        return part.pin_memory().to(self.device, non_blocking=True) if self.device == "cuda" else part.to(self.device)

    def _clip(self, limit: float) -> None:
        for layer, record in (self.attention.seen or {}).items():
            block = self.model.blocks[layer]
            assert isinstance(block, Block)
            clip_logits(block, measurement.largest_logits(record), limit)

    def _measure(self, step: int) -> None:
        found = measurement.measure(self.attention.seen or {}, self.model.blocks, step)
        self.series.measured.append((step, dict(found.columns)))
        if found.alarm > WARN_AT and self.series.alarm_step is None:
            self.series.alarm_step = step
        error = 0.0 if found.worst is None else found.worst[2]
        self.say(f"step {step}/{self.setup.steps} loss {float(self._waiting[-1][0]):.4f} dq off by {percent(error)}")
        threshold, written = self.setup.capture_threshold, len(self.series.captures)
        if found.worst is not None and threshold is not None and written < MOST_CAPTURES:
            layer, head, error = found.worst
            if threshold * 10**written <= error < math.inf:
                self._capture(step, layer, head, error, found.seen[layer])

    def _capture(self, step: int, layer: int, head: int, error: float, record: WatchedCall) -> None:
        """Write the worst head of the worst layer as an input set, once at each power of ten of the threshold."""
        assert record.do is not None
        settings, model = self.settings, self.setup.model
        whole = (part.to("cpu", torch.bfloat16) for part in (record.q, record.k, record.v, record.do))
        tensors = selection.with_heads(LayerTensors(*whole), [head])
        file = f"{settings.name}-{settings.backend}-seed{settings.seed}-step{step}.safetensors"
        optimizer = self.setup.optimizer
        metadata = {
            "softmax_scale": repr(self.attention.softmax_scale),
            "causal": "true",
            "layout": "batch, head, sequence, head_dim",
            "step": str(step),
            "layers": str(model.layers),
            "kept_heads": f"L{layer}: {head}",
            "kept_of": f"{model.heads} heads of {model.layers} layers",
            "batch": f"first 1 of {self.setup.data.batch}",
            "attention": settings.backend,
            "seed": str(settings.seed),
            "width": str(model.width),
            "positions": model.positions,
            "qkv_bias": " ".join(model.biases) or "no",
            "tokens": self.setup.data.name,
            "optimizer": f"Muon {optimizer.muon_rate}, AdamW {optimizer.adamw_rate}, biases {optimizer.bias_rate}",
            **selection.origin(record.q.device),
        }
        layers = {f"L{layer}": tensors}
        try:
            selection.write(Path(settings.captures) / file, layers, metadata)
            digest = InputSet(file, layers, True, self.attention.softmax_scale, {}).content_hash()
        # A training run is worth more than its capture: what cannot be written is told, and the run goes on.
        except (InputError, OSError) as problem:
            self.say(f"not captured at step {step}: {problem}")
            return
        self.series.captures.append(TrainingCapture(file, digest, step, layer, error))

    def _flush(self) -> None:
        """Wait for the steps under way, and note them with their mean time."""
        if self._waiting:
            for loss, norm in torch.stack(self._waiting).tolist():
                self.series.losses.append(loss)
                self.series.norms.append(norm)
            seconds = CLOCK() - self._begin
            self.series.elapsed += 0.0 if math.isnan(seconds) else seconds
            self.series.seconds += [seconds / len(self._waiting)] * len(self._waiting)
            self._waiting = []
        elif self.device == "cuda":
            torch.cuda.synchronize()
        self._begin = CLOCK()

    def _caught_up(self) -> tuple[TrainingStatus, str] | None:
        """Wait for the steps under way; whether, by their losses, the run has diverged."""
        self._flush()
        return self._diverged()

    def _diverged(self) -> tuple[TrainingStatus, str] | None:
        losses = self.series.losses
        for index in range(max(0, len(losses) - MAX_POINTS), len(losses)):
            if not math.isfinite(losses[index]):
                for column in (losses, self.series.norms, self.series.seconds):
                    del column[index + 1 :]
                return "diverged", f"the loss was {losses[index]} at step {index + 1}"
        if len(losses) >= BEGINNING + RECENT:
            first, now = statistics.fmean(losses[:BEGINNING]), statistics.fmean(losses[-RECENT:])
            if now > first + RISE:
                return (
                    "diverged",
                    f"the loss was {now:.3g} over {RECENT} steps before step {len(losses)}, {first:.3g} at first",
                )
        return None

    def _save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizers": self.optimizers.state(),
            "series": self.series.state(),
        }
        files.save_checkpoint(self.folder, state)
        files.save_run(self.folder, self.found("ended_early", NO_END))
        self._begin = CLOCK()

    def _end(self, why: tuple[TrainingStatus, str] | None) -> TrainingRun:
        if why is not None and why[0] == "ended_early":
            self._save()
        run = self.found(*(why or ("completed", None)))
        files.save_run(self.folder, run)
        if run.status != "ended_early":
            (self.folder / files.CHECKPOINT).unlink(missing_ok=True)
        return run
