"""The file of an input set, with the standard library alone: its description, its content hash, whether it is finite.

Tensors are `LAYER.q`, `.k`, `.v`, `.do`. Metadata: `softmax_scale` is a number or `head_dim**-0.5` (also when absent);
`causal` is `true` (also when absent) or `false`. All other entries are kept as provenance.

The service and the workers, which have no torch, check with this what the ruler will read.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gprojci_suite.contract import tensor_file
from gprojci_suite.contract.report import Layer
from gprojci_suite.contract.tensor_file import MalformedFile, TensorEntry

PARTS = ("q", "k", "v", "do")
DTYPES = {"BF16": "bfloat16", "F16": "float16"}
SUFFIX = ".safetensors"
BYTES_LIMIT = 2**31
"""Largest file accepted, in bytes."""
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""Regular expression of the names that a file in a directory of input sets may have, without its suffix."""
_CHUNK = 2**20
# Bytes whose bits make an exponent of ones, which only NaN and Inf have.
_BF16_HIGH, _BF16_LOW = bytes(byte & 0x7F == 0x7F for byte in range(256)), bytes(byte >> 7 for byte in range(256))
_F16_HIGH = bytes(byte & 0x7C == 0x7C for byte in range(256))


@dataclass(frozen=True)
class InputFile:
    """What the header of a file says of its input set.

    Attributes:
        layers: shapes by layer, in order of name.
        dtype: `bfloat16` or `float16`, the same for all tensors.
        causal: mask aligned to the bottom right, or none.
        softmax_scale: factor of the logits.
        provenance: the whole metadata.
        tensors: where each `LAYER.part` lies, in the canonical order: by layer, then q, k, v, do.
        data_start, file_bytes: where the tensors begin, and how long the file must be, in bytes.
    """

    layers: tuple[Layer, ...]
    dtype: str
    causal: bool
    softmax_scale: float
    provenance: Mapping[str, str]
    tensors: tuple[TensorEntry, ...]
    data_start: int
    file_bytes: int


def describe(header: tensor_file.Header) -> InputFile:
    """The input set of a file's header; raises MalformedFile with the reason in one line."""
    parts: dict[str, dict[str, TensorEntry]] = {}
    for entry in header.tensors:
        match = re.fullmatch(r"([A-Za-z0-9_-]{1,64})\.(q|k|v|do)", entry.name)
        if match is None:
            raise MalformedFile(f"unexpected tensor {entry.name!r}; expected LAYER.q, .k, .v and .do")
        parts.setdefault(match[1], {})[match[2]] = entry
    if not parts:
        raise MalformedFile("holds no tensor")
    layers = []
    for layer in sorted(parts):
        missing = [part for part in PARTS if part not in parts[layer]]
        if missing:
            raise MalformedFile(f"{layer} lacks {', '.join(missing)}")
        shapes = {part: parts[layer][part].shape for part in PARTS}
        dtypes = {part: DTYPES.get(parts[layer][part].dtype, parts[layer][part].dtype) for part in PARTS}
        layers.append(check_layer(layer, shapes, dtypes))
    found = {entry.dtype for entry in header.tensors}
    if len(found) > 1:
        raise MalformedFile("the layers differ in dtype")
    return InputFile(
        layers=tuple(layers),
        dtype=DTYPES[found.pop()],
        causal=_causal(header.metadata),
        softmax_scale=_scale(header.metadata, layers[0].head_dim),
        provenance=dict(header.metadata),
        tensors=tuple(parts[layer][part] for layer in sorted(parts) for part in PARTS),
        data_start=header.data_start,
        file_bytes=header.file_bytes,
    )


def check_layer(layer: str, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> Layer:
    """The sizes of one layer from the shapes and element types of its q, k, v and do; raises MalformedFile."""
    for part in PARTS:
        if len(shapes[part]) != 4 or 0 in shapes[part]:
            raise MalformedFile(f"{layer}.{part}: must be (batch, heads, seq, head_dim), got shape {shapes[part]}")
        if dtypes[part] not in DTYPES.values():
            raise MalformedFile(f"{layer}.{part}: must be bfloat16 or float16, got {dtypes[part]}")
        if dtypes[part] != dtypes["q"]:
            raise MalformedFile(f"{layer}: q, k, v and do must share one dtype")
    q, k = shapes["q"], shapes["k"]
    if shapes["do"] != q:
        raise MalformedFile(f"{layer}: do {shapes['do']} must have the shape of q {q}")
    if shapes["v"] != k:
        raise MalformedFile(f"{layer}: v {shapes['v']} must have the shape of k {k}")
    if q[0] != k[0] or q[3] != k[3]:
        raise MalformedFile(f"{layer}: q {q} and k {k} differ in batch or head_dim")
    if q[1] % k[1]:
        raise MalformedFile(f"{layer}: {q[1]} query heads cannot share {k[1]} key/value heads")
    return Layer(layer, q[0], q[1], k[1], q[2], k[2], q[3])


def check_scale(scale: float) -> float:
    """The factor of the logits; raises MalformedFile unless it is finite and above zero."""
    if not 0 < scale < float("inf"):
        raise MalformedFile(f"softmax_scale must be finite and above zero, got {scale}")
    return scale


def _causal(metadata: Mapping[str, str]) -> bool:
    causal = metadata.get("causal", "true").lower()
    if causal not in ("true", "false"):
        raise MalformedFile(f"the metadata's causal must be true or false, got {causal!r}")
    return causal == "true"


def _scale(metadata: Mapping[str, str], head_dim: int) -> float:
    text = metadata.get("softmax_scale", "head_dim**-0.5")
    if text.replace(" ", "") == "head_dim**-0.5":
        return float(head_dim**-0.5)
    try:
        return check_scale(float(text))
    except MalformedFile:
        raise
    except ValueError as error:
        raise MalformedFile(f"softmax_scale must be a number or head_dim**-0.5, got {text!r}") from error


class ContentHash:
    """`sha256:` of mask, scale and every tensor's name, dtype, shape and little-endian bytes, in canonical order.

    Metadata, order and alignment in a file do not change it.
    """

    def __init__(self, causal: bool, softmax_scale: float) -> None:
        self._digest = hashlib.sha256(f"causal={causal};softmax_scale={softmax_scale!r}\n".encode())

    def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """A tensor `LAYER.part` follows; dtype is `bfloat16` or `float16`."""
        self._digest.update(json.dumps([name, dtype, list(shape)]).encode())

    def update(self, data: bytes) -> None:
        """Some of its bytes."""
        self._digest.update(data)

    def text(self) -> str:
        """The hash of all tensors so far."""
        return f"sha256:{self._digest.hexdigest()}"


def content_hash(file: BinaryIO, found: InputFile) -> str:
    """The hash of a file's input set, read in pieces; raises MalformedFile where it ends early or holds NaN or Inf."""
    digest = ContentHash(found.causal, found.softmax_scale)
    for entry in found.tensors:
        digest.begin(entry.name, found.dtype, entry.shape)
        for chunk in _chunks(file, found.data_start + entry.start, entry.stop - entry.start):
            if _has_nonfinite(chunk, entry.dtype):
                raise MalformedFile(f"{entry.name}: holds NaN or Inf")
            digest.update(chunk)
    return digest.text()


def check(path: Path) -> tuple[InputFile, str]:
    """A file's description and content hash; raises MalformedFile for whatever is wrong with it, or OSError."""
    with path.open("rb") as file:
        return check_stream(file, path.stat().st_size)


def check_stream(file: BinaryIO, length: int) -> tuple[InputFile, str]:
    """As `check`, of an open file of `length` bytes."""
    beginning = file.read(8)
    beginning += file.read(tensor_file.data_start(beginning) - 8)
    header = tensor_file.parse(beginning)
    if length > BYTES_LIMIT:
        raise MalformedFile(f"oversized, {length} bytes where {BYTES_LIMIT} are accepted")
    header.check_length(length)
    found = describe(header)
    return found, content_hash(file, found)


def _chunks(file: BinaryIO, start: int, length: int) -> Iterator[bytes]:
    file.seek(start)
    while length:
        chunk = file.read(min(length, _CHUNK))
        if not chunk or len(chunk) % 2:
            raise MalformedFile("truncated within its tensors")
        length -= len(chunk)
        yield chunk


def _has_nonfinite(chunk: bytes, dtype: str) -> bool:
    """Whether a little-endian element has an exponent of ones only."""
    if dtype == "F16":
        return 1 in chunk[1::2].translate(_F16_HIGH)
    high = int.from_bytes(chunk[1::2].translate(_BF16_HIGH), "little")
    return high != 0 and high & int.from_bytes(chunk[0::2].translate(_BF16_LOW), "little") != 0
