"""Input sets from safetensors bytes: tensors `LAYER.q`, `.k`, `.v`, `.do`; mask and scale in the metadata.

Metadata: `softmax_scale` is a number or `head_dim**-0.5` (also when absent); `causal` is `true` (also when absent) or
`false`. All other entries are kept as provenance.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from gprojci_suite import exchange
from gprojci_suite.inputs.sets import PARTS, InputError, InputSet, LayerTensors

BYTES_LIMIT = 2**31
"""Largest file accepted, in bytes."""


def read(path: Path, name: str) -> InputSet:
    """Read and validate one file; raises InputError."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise InputError(f"{name}: not a file")
        if size > BYTES_LIMIT:
            raise InputError(f"{name}: oversized, {size} bytes where {BYTES_LIMIT} are accepted")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from error
    return decode(data, name)


def decode(data: bytes, name: str) -> InputSet:
    """Validate the bytes of one safetensors file; raises InputError."""
    try:
        tensors, metadata = exchange.parse(data)
    except exchange.MalformedFile as error:
        raise InputError(f"{name}: {error}") from error
    layers = _layers(tensors, name)
    causal = metadata.get("causal", "true").lower()
    if causal not in ("true", "false"):
        raise InputError(f"{name}: the metadata's causal must be true or false, got {causal!r}")
    head_dim = next(iter(layers.values())).q.shape[-1]
    return InputSet(name, layers, causal == "true", _scale(metadata, head_dim, name), metadata)


def _layers(tensors: Mapping[str, Tensor], name: str) -> dict[str, LayerTensors]:
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = re.fullmatch(r"([A-Za-z0-9_-]{1,64})\.(q|k|v|do)", key)
        if match is None:
            raise InputError(f"{name}: unexpected tensor {key!r}; expected LAYER.q, .k, .v and .do")
        if tensor.dim() != 4 or tensor.numel() == 0:
            raise InputError(f"{name}: {key}: must be (batch, heads, seq, head_dim), got shape {tuple(tensor.shape)}")
        parts.setdefault(match[1], {})[match[2]] = tensor
    for layer, found in parts.items():
        missing = [part for part in PARTS if part not in found]
        if missing:
            raise InputError(f"{name}: {layer} lacks {', '.join(missing)}")
    if not parts:
        raise InputError(f"{name}: holds no tensor")
    return {layer: LayerTensors(**parts[layer]) for layer in sorted(parts)}


def _scale(metadata: Mapping[str, str], head_dim: int, name: str) -> float:
    text = metadata.get("softmax_scale", "head_dim**-0.5")
    if text.replace(" ", "") == "head_dim**-0.5":
        return float(head_dim**-0.5)
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{name}: softmax_scale must be a number or head_dim**-0.5, got {text!r}") from error
