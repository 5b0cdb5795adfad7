"""An input set: the q, k, v and do of some layers with mask and scale, its content hash and its statistics."""

import ctypes
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gprojci_suite.contract.report import Input, Layer, SliceStatistics

DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
PARTS = ("q", "k", "v", "do")
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
        for layer, tensors in self.layers.items():
            _check_layer(f"{self.name}: {layer}", tensors)
        if len({tensors.q.dtype for tensors in self.layers.values()}) > 1:
            raise InputError(f"{self.name}: the layers differ in dtype")
        if not 0 < self.softmax_scale < float("inf"):
            raise InputError(f"{self.name}: softmax_scale must be finite and above zero, got {self.softmax_scale}")

    @property
    def dtype(self) -> torch.dtype:
        """Element type of all tensors."""
        return next(iter(self.layers.values())).q.dtype

    def content_hash(self) -> str:
        """`sha256:` of mask, scale and every tensor's name, dtype, shape and little-endian bytes, in order of name.

        Metadata, order and alignment in a file do not change it.
        """
        digest = hashlib.sha256(f"causal={self.causal};softmax_scale={self.softmax_scale!r}\n".encode())
        for layer in sorted(self.layers):
            for part in PARTS:
                tensor = getattr(self.layers[layer], part).contiguous()
                digest.update(json.dumps([f"{layer}.{part}", DTYPES[tensor.dtype], list(tensor.shape)]).encode())
                digest.update(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
        return f"sha256:{digest.hexdigest()}"

    def describe(self) -> Input:
        """The set as the report describes it."""
        layers = [
            Layer(name, t.q.shape[0], t.q.shape[1], t.k.shape[1], t.q.shape[2], t.k.shape[2], t.q.shape[3])
            for name, t in self.layers.items()
        ]
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


def _check_layer(where: str, layer: LayerTensors) -> None:
    for part in PARTS:
        tensor = getattr(layer, part)
        if tensor.dim() != 4 or tensor.numel() == 0:
            raise InputError(f"{where}.{part}: must be (batch, heads, seq, head_dim), got shape {tuple(tensor.shape)}")
        if tensor.dtype not in DTYPES:
            raise InputError(f"{where}.{part}: must be bfloat16 or float16, got {tensor.dtype}")
        if tensor.dtype != layer.q.dtype:
            raise InputError(f"{where}: q, k, v and do must share one dtype")
        if not torch.isfinite(tensor).all():
            raise InputError(f"{where}.{part}: holds NaN or Inf")
    if layer.do.shape != layer.q.shape:
        raise InputError(f"{where}: do {tuple(layer.do.shape)} must have the shape of q {tuple(layer.q.shape)}")
    if layer.v.shape != layer.k.shape:
        raise InputError(f"{where}: v {tuple(layer.v.shape)} must have the shape of k {tuple(layer.k.shape)}")
    if layer.q.shape[0] != layer.k.shape[0] or layer.q.shape[3] != layer.k.shape[3]:
        raise InputError(f"{where}: q {tuple(layer.q.shape)} and k {tuple(layer.k.shape)} differ in batch or head_dim")
    if layer.q.shape[1] % layer.k.shape[1]:
        raise InputError(f"{where}: {layer.q.shape[1]} query heads cannot share {layer.k.shape[1]} key/value heads")
