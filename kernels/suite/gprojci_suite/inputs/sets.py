"""An input set: the q, k, v and do of some layers with mask and scale, its content hash and its statistics."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gprojci_suite.contract import input_file
from gprojci_suite.contract.input_file import PARTS, ContentHash
from gprojci_suite.contract.report import Input, Layer, SliceStatistics
from gprojci_suite.contract.tensor_file import MalformedFile

DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
ROWS = 512


class InputError(ValueError):
    """An input set does not exist or cannot be used; the message says which and why in one line."""


@dataclass(frozen=True)
class LayerTensors:
    """One layer: q, do (batch, heads, seq_q, head_dim) and k, v (batch, kv_heads, seq_k, head_dim), of one dtype."""

    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor


@dataclass(frozen=True)
class InputSet:
    """A validated input set.

    Attributes:
        name: what it was asked for by.
        layers: tensors by layer name.
        causal: mask aligned to the bottom right, or none.
        softmax_scale: factor of the logits.
        provenance: where the tensors come from.
    """

    name: str
    layers: Mapping[str, LayerTensors]
    causal: bool
    softmax_scale: float
    provenance: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError(f"{self.name}: holds no layer")
        try:
            for layer, tensors in self.layers.items():
                _sizes(layer, tensors)
            input_file.check_scale(self.softmax_scale)
        except MalformedFile as error:
            raise InputError(f"{self.name}: {error}") from error
        if len({tensors.q.dtype for tensors in self.layers.values()}) > 1:
            raise InputError(f"{self.name}: the layers differ in dtype")
        for layer, tensors in self.layers.items():
            for part in PARTS:
                if not torch.isfinite(getattr(tensors, part)).all():
                    raise InputError(f"{self.name}: {layer}.{part}: holds NaN or Inf")

    @property
    def dtype(self) -> torch.dtype:
        """Element type of all tensors."""
        return next(iter(self.layers.values())).q.dtype

    def content_hash(self) -> str:
        """`sha256:` of mask, scale and every tensor's name, dtype, shape and little-endian bytes, in order of name.

        Metadata, order and alignment in a file do not change it.
        """
        digest = ContentHash(self.causal, self.softmax_scale)
        for layer in sorted(self.layers):
            for part in PARTS:
                tensor = getattr(self.layers[layer], part).contiguous()
                digest.begin(f"{layer}.{part}", DTYPES[tensor.dtype], tuple(tensor.shape))
                digest.update(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
        return digest.text()

    def describe(self) -> Input:
        """The set as the report describes it."""
        layers = [_sizes(name, tensors) for name, tensors in self.layers.items()]
        statistics = [item for name, tensors in self.layers.items() for item in self._statistics(name, tensors)]
        return Input(
            self.name,
            self.content_hash(),
            self.causal,
            self.softmax_scale,
            DTYPES[self.dtype],
            tuple(layers),
            tuple(statistics),
            dict(self.provenance),
        )

    def _statistics(self, layer: str, tensors: LayerTensors) -> list[SliceStatistics]:
        batch, heads, seq_q, _ = tensors.q.shape
        group, seq_k = heads // tensors.k.shape[1], tensors.k.shape[2]
        result = []
        for b in range(batch):
            for h in range(heads):
                keys = tensors.k[b, h // group].float()
                mean = keys.mean(0)
                spread = (keys - mean).square().sum(-1).mean().sqrt()
                largest, top = 0.0, []
                for start in range(0, seq_q, ROWS):
                    logits = tensors.q[b, h, start : start + ROWS].float() @ keys.mT * self.softmax_scale
                    if self.causal:
                        last = torch.arange(start, start + logits.shape[0])[:, None] + seq_k - seq_q
                        hidden = torch.arange(seq_k) > last
                        logits = logits.masked_fill(hidden, -torch.inf)
                        largest = max(largest, float(logits.masked_fill(hidden, 0).abs().amax()))
                        logits = logits[last[:, 0] >= 0]
                    else:
                        largest = max(largest, float(logits.abs().amax()))
                    top.append(logits.softmax(-1).amax(-1))
                probabilities = torch.cat(top)
                median = float(probabilities.median()) if probabilities.numel() else 0.0
                ratio = float(mean.norm() / spread) if spread > 0 else float("inf")
                result.append(SliceStatistics(f"{layer}.b{b}.h{h}", ratio, largest, median))
        return result


def _sizes(layer: str, tensors: LayerTensors) -> Layer:
    """Shapes of one layer; raises MalformedFile where they do not go together."""
    found = {part: getattr(tensors, part) for part in PARTS}
    shapes = {part: tuple(tensor.shape) for part, tensor in found.items()}
    dtypes = {part: DTYPES.get(tensor.dtype, str(tensor.dtype)) for part, tensor in found.items()}
    return input_file.check_layer(layer, shapes, dtypes)
