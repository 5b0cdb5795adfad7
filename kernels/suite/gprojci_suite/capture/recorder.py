"""The context manager that watches a training loop and writes one input set per recorded step.

Between recorded steps nothing is replaced: the loop runs the code that it runs without this module. In a recorded step
the attention functions are replaced by ones that copy their arguments and hook the gradient of their result, and
compiled code runs eagerly, since a compiled graph would not call them.
"""

import contextlib
import re
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gprojci_suite.capture import selection
from gprojci_suite.capture.selection import Choice
from gprojci_suite.capture.targets import STANDARD, Call, Function, Target, by_name, find, read, reason_of, watching
from gprojci_suite.inputs import InputError, InputSet, LayerTensors
from gprojci_suite.inputs.sets import DTYPES

OWN: tuple[str, ...] = (
    "softmax_scale",
    "causal",
    "layout",
    "step",
    "layers",
    "kept_heads",
    "kept_of",
    "chosen",
    "seed",
    "function",
)
OWN += ("batch", "rounded_from", "gpu", "torch", "captured_at", "suite")
"""Metadata that the recorder writes itself."""


class CaptureError(ValueError):
    """The arguments of `capture` cannot be; raised before the loop starts, never within it."""


class CaptureWarning(UserWarning):
    """Something was not recorded; the message says what and why."""


@dataclass
class Record:
    """One recorded call: copies, and the gradient once it has arrived."""

    layer: str
    call: Call
    function: str
    do: Tensor | None = None


@contextlib.contextmanager
def capture(
    directory: str | Path,
    *,
    layers: Sequence[int],
    steps: Container[int],
    name: str = "capture",
    heads: int | None = None,
    choose: Choice = "error",
    seed: int = 0,
    batch: int = 1,
    wrap: Sequence[str | Target] | None = None,
    provenance: Mapping[str, str] | None = None,
) -> Iterator["Recorder"]:
    """Record chosen attention calls of a training loop; call `recorder.step(number)` before each step's forward pass.

    Writes `directory/name-stepNUMBER.safetensors` per recorded step, an input set that `gprojci-suite` reads. Calls
    are counted in order within a step, from zero; those whose result needs no gradient are not counted. A call that an
    input set cannot hold (dropout, a mask other than causal, lengths told by `seqused`), and a layer whose gradient
    never arrives, is left out with a CaptureWarning; nothing that goes wrong within the loop stops it.

    Args:
        directory: where the files go; made when needed.
        layers: numbers of the calls to record, which are layers where each layer calls attention once.
        steps: numbers of the steps to record, such as a list or a range.
        name: start of the file names; letters, digits, '.', '_' and '-'.
        heads: key/value heads kept of each layer, with all query heads that share them; None for all.
        choose: by `error`, half the heads with the largest dq error by emulation and half near the median, or `random`.
        seed: of the random choice.
        batch: how many elements of the batch are kept; of packed sequences it is the first.
        wrap: `module:function` names or Targets to record instead of scaled_dot_product_attention and flash_attn_func.
        provenance: further metadata of the files.

    Raises:
        CaptureError: when an argument cannot be.
    """
    recorder = Recorder(
        Path(directory), tuple(layers), steps, name, heads, choose, seed, batch, wrap, dict(provenance or {})
    )
    try:
        yield recorder
    except BaseException:
        recorder.close(only_whole=True)
        raise
    recorder.close(only_whole=False)


class Recorder:
    """What `capture` yields."""

    def __init__(
        self,
        directory: Path,
        layers: tuple[int, ...],
        steps: Container[int],
        name: str,
        heads: int | None,
        choose: Choice,
        seed: int,
        batch: int,
        wrap: Sequence[str | Target] | None,
        provenance: dict[str, str],
    ) -> None:
        if not layers or min(layers) < 0 or len(set(layers)) != len(layers):
            raise CaptureError(f"layers: must be distinct numbers from zero, got {list(layers)}")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise CaptureError(f"name: letters, digits, '.', '_' and '-' only, got {name!r}")
        if (heads is not None and heads < 1) or batch < 1:
            raise CaptureError("heads and batch: at least 1")
        if choose not in ("error", "random"):
            raise CaptureError(f"choose: must be error or random, got {choose!r}")
        for key, value in provenance.items():
            if key in OWN or not isinstance(value, str):
                raise CaptureError(f"provenance: {key!r} must be a string under a name not used here")
        try:
            self._targets = STANDARD if wrap is None else tuple(find(where) for where in wrap)
        except ValueError as error:
            raise CaptureError(f"wrap: {error}") from error
        self.written: list[Path] = []
        """Files written so far."""
        self.skipped: list[str] = []
        """What was not recorded, and why."""
        self._directory, self._layers, self._steps, self._name = directory, frozenset(layers), steps, name
        self._heads, self._choose, self._seed, self._batch = heads, choose, seed, batch
        self._provenance = provenance
        self._step: int | None = None
        self._records: list[Record] = []
        self._calls = 0
        self._active = contextlib.ExitStack()

    def step(self, number: int) -> None:
        """Tell that step `number` begins: finishes a recorded step before it, and records this one if it is chosen."""
        if self._step is not None:
            self._finish(only_whole=False)
        if number in self._steps:
            self._begin(number)

    def close(self, *, only_whole: bool) -> None:
        """Finish the step being recorded; with `only_whole` it is dropped unless every chosen layer is there."""
        if self._step is not None:
            self._finish(only_whole=only_whole)

    def _begin(self, number: int) -> None:
        self._step, self._records, self._calls = number, [], 0
        self._active.enter_context(watching(self._targets, self._saw))

    def _saw(
        self, target: Target, original: Function, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        output = result[0] if isinstance(result, tuple) else result
        if self._step is None or not isinstance(output, Tensor) or not output.requires_grad:
            return
        number, self._calls = self._calls, self._calls + 1
        if number not in self._layers:
            return
        try:
            call = read(target, by_name(target, original, args, kwargs))
            with torch.no_grad():
                q, k, v = (tensor[: self._batch].detach().clone() for tensor in (call.q, call.k, call.v))
        # A training run is worth more than its capture.
        except Exception as error:  # noqa: BLE001
            self._skip(f"L{number}: {target.where}: {reason_of(error)}")
            return
        record = Record(f"L{number}", Call(q, k, v, call.causal, call.softmax_scale, call.sequences), target.where)
        self._records.append(record)
        output.register_hook(self._gradient_of(record, target))  # type: ignore[no-untyped-call]

    def _gradient_of(self, record: Record, target: Target) -> Callable[[Tensor], None]:
        def arrived(gradient: Tensor) -> None:
            if record.do is None:
                try:
                    record.do = target.turned(gradient, record.call.q.shape[2])[: self._batch].detach().clone()
                except Exception as error:  # noqa: BLE001
                    self._skip(f"{record.layer}: {reason_of(error)}")

        return arrived

    def _finish(self, *, only_whole: bool) -> None:
        number, records = self._step, self._records
        assert number is not None
        self._step, self._records = None, []
        self._active.close()
        whole = [record for record in records if record.do is not None]
        if only_whole and len(whole) < len(self._layers):
            return
        for record in records:
            if record.do is None:
                self._skip(f"step {number}, {record.layer}: no gradient arrived")
        for layer in sorted(self._layers):
            if layer >= self._calls:
                self._skip(f"step {number}, L{layer}: attention was called {self._calls} times")
        whole = self._alike(number, whole)
        if whole:
            try:
                self._write(number, whole)
            # A training run is worth more than its capture: what cannot be written is told, and the loop goes on.
            except (InputError, OSError) as error:
                self._skip(f"step {number}: {error}")

    def _alike(self, number: int, records: list[Record]) -> list[Record]:
        """Those with the mask and scale of the first: an input set has one of each."""
        kept = []
        for record in records:
            first, call = records[0].call, record.call
            if (call.causal, call.softmax_scale) == (first.causal, first.softmax_scale):
                kept.append(record)
            else:
                self._skip(f"step {number}, {record.layer}: differs from {records[0].layer} in mask or scale")
        return kept

    def _write(self, number: int, records: list[Record]) -> None:
        first = records[0]
        path = self._directory / f"{self._name}-step{number}.safetensors"
        layers = {record.layer: _tensors(record) for record in records}
        item = InputSet(path.name, layers, first.call.causal, first.call.softmax_scale, {})
        kept = {
            layer: selection.kept_heads(item, layer, self._heads, self._choose, f"{self._seed} {number} {layer}")
            for layer in layers
        }
        total = first.call.k.shape[1]
        dropped = self._heads is not None and self._heads < total
        metadata = {
            **self._provenance,
            "softmax_scale": repr(first.call.softmax_scale),
            "causal": "true" if first.call.causal else "false",
            "layout": "batch, head, sequence, head_dim",
            "step": str(number),
            "layers": " ".join(record.layer for record in records),
            "kept_heads": "; ".join(f"{layer}: {' '.join(map(str, heads))}" for layer, heads in kept.items()),
            "kept_of": f"{total} key/value heads of each layer",
            "chosen": f"by {self._choose}" if dropped else "all",
            "seed": str(self._seed),
            "function": " ".join(dict.fromkeys(record.function for record in records)),
            "batch": f"first {first.call.q.shape[0]} of {first.call.sequences}",
            **selection.origin(first.call.q.device),
        }
        if first.call.q.dtype not in DTYPES:
            metadata["rounded_from"] = str(first.call.q.dtype).removeprefix("torch.")
        selection.write(
            path, {layer: selection.with_heads(tensors, kept[layer]) for layer, tensors in layers.items()}, metadata
        )
        self.written.append(path)

    def _skip(self, reason: str) -> None:
        self.skipped.append(reason)
        warnings.warn(f"not captured: {reason}", CaptureWarning, stacklevel=2)


def _tensors(record: Record) -> LayerTensors:
    """The tensors of a record, rounded once to bfloat16 where they are wider than 16 bits."""
    assert record.do is not None
    dtype = record.call.q.dtype if record.call.q.dtype in DTYPES else torch.bfloat16
    return LayerTensors(*(t.to(dtype) for t in (record.call.q, record.call.k, record.call.v, record.do)))
