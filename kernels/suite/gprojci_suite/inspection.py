"""What makes an input set hard, and which error each emulated backend would make on it: `gprojci-suite inspect`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gprojci_suite import accuracy, expected, masks
from gprojci_suite.contract.report import Input, Slice
from gprojci_suite.inputs import InputSet, LayerTensors
from gprojci_suite.readable import percent
from gprojci_suite.table import aligned

ROWS = 512


@dataclass(frozen=True)
class SliceProfile:
    """What the pictures show of one slice (layer, batch, head).

    Attributes:
        slice: its name.
        mean_key: mean over the keys per dimension, (head_dim,), over the root mean square deviation of all of them.
        top_probability: largest probability of every row that sees a key.
    """

    slice: str
    mean_key: Tensor
    top_probability: Tensor


@dataclass(frozen=True)
class Inspection:
    """Everything that is known of an input set without running a backend on it."""

    description: Input
    profiles: tuple[SliceProfile, ...]
    errors: tuple[Slice, ...]
    """Errors against float64 of every emulated backend, tensor and slice."""

    @property
    def backends(self) -> list[str]:
        """The emulated backends."""
        return list(dict.fromkeys(item.backend for item in self.errors))

    def error(self, backend: str, tensor: str) -> dict[str, Slice]:
        """Errors of one backend and tensor by slice."""
        return {item.slice: item for item in self.errors if (item.backend, item.tensor) == (backend, tensor)}


def inspect(item: InputSet, progress: Callable[[str], None]) -> Inspection:
    """Statistics of a set, and its expected errors by emulation on the CPU; progress is told each step."""
    progress(f"reference {item.name}")
    references = accuracy.references(item)
    errors: list[Slice] = []
    names = expected.names()
    for number, name in enumerate(names, 1):
        progress(f"emulate {name} {number}/{len(names)}")
        errors += expected.errors(name, item, references)
    profiles = [profile for layer, tensors in item.layers.items() for profile in _profiles(layer, tensors, item)]
    return Inspection(item.describe(), tuple(profiles), tuple(errors))


def render(found: Inspection) -> str:
    """The set, its slices and the expected errors as tables for a terminal."""
    about = found.description
    mask = "causal" if about.causal else "full mask"
    head = [f"{about.input}  {about.content_hash}", f"{about.dtype}, {mask}, softmax scale {about.softmax_scale:.6g}"]
    head += [
        f"{one.layer}: batch {one.batch}, {one.heads} heads, {one.kv_heads} key/value heads, "
        f"{one.seq_q} queries, {one.seq_k} keys, head_dim {one.head_dim}"
        for one in about.layers
    ]
    head += [f"{key}: {value}" for key, value in sorted(about.provenance.items())]
    rows = [["slice", "offset / spread", "largest logit", "median top probability"]]
    rows += [
        [s.slice, f"{s.offset_spread:.3g}", f"{s.largest_logit:.4g}", f"{s.median_top_probability:.3f}"]
        for s in about.statistics
    ]
    parts = ["\n".join(head), "slices\n" + aligned(rows)]
    parts += [_expected(found, tensor) for tensor in ("dq", "dk")]
    return "\n\n".join(parts)


def _expected(found: Inspection, tensor: str) -> str:
    by_backend = {name: found.error(name, tensor) for name in found.backends}
    rows = [["slice", *by_backend]]
    for name in next(iter(by_backend.values())):
        cells = [errors[name] for errors in by_backend.values()]
        rows.append([name, *(percent(c.rel_err) + (" (vanishing)" if c.vanishing else "") for c in cells)])
    return f"expected relative error of {tensor}, by emulation\n" + aligned(rows)


def _profiles(layer: str, tensors: LayerTensors, item: InputSet) -> list[SliceProfile]:
    batch, heads, seq_q, _ = tensors.q.shape
    group, seq_k = heads // tensors.k.shape[1], tensors.k.shape[2]
    visible = masks.bottom_right(seq_q, seq_k, torch.device("cpu")) if item.causal else None
    found = []
    for b, h in ((b, h) for b in range(batch) for h in range(heads)):
        keys = tensors.k[b, h // group].float()
        mean = keys.mean(0)
        spread = (keys - mean).square().mean().sqrt().clamp_min(torch.finfo(torch.float32).tiny)
        top = []
        for start in range(0, seq_q, ROWS):
            logits = tensors.q[b, h, start : start + ROWS].float() @ keys.mT * item.softmax_scale
            if visible is not None:
                seen = visible[start : start + ROWS]
                logits = logits.masked_fill(~seen, -torch.inf)[seen.any(-1)]
            top.append(logits.softmax(-1).amax(-1))
        found.append(SliceProfile(f"{layer}.b{b}.h{h}", mean / spread, torch.cat(top)))
    return found
