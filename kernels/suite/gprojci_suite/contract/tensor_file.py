"""The header of a safetensors file, with the standard library alone: which tensors lie where, and the metadata."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8}
"""Bytes of one element by the format's name of its type; floating-point types only."""
HEADER_LIMIT = 1_000_000
"""Longest header accepted, in bytes."""


class MalformedFile(ValueError):
    """The bytes are not a safetensors file of floating-point tensors."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: its name, the format's name of its type, its shape, and where its bytes lie behind the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Header:
    """All tensors in the order of their bytes, without gap or overlap, and the metadata."""

    tensors: tuple[TensorEntry, ...]
    metadata: Mapping[str, str]
    data_start: int
    """Where the tensors' bytes begin in the file."""

    @property
    def file_bytes(self) -> int:
        """How long the whole file must be, in bytes."""
        return self.data_start + (self.tensors[-1].stop if self.tensors else 0)

    def check_length(self, length: int) -> None:
        """Raise MalformedFile unless a file of `length` bytes holds exactly these tensors."""
        for entry in self.tensors:
            if self.data_start + entry.stop > length:
                raise MalformedFile(f"{entry.name}: its bytes [{entry.start}, {entry.stop}) lie beyond the end")
        if self.file_bytes != length:
            raise MalformedFile(f"{length - self.file_bytes} bytes belong to no tensor")


def data_start(beginning: bytes | bytearray) -> int:
    """Where the tensors' bytes begin, from the first eight bytes of a file; raises MalformedFile."""
    if len(beginning) < 8:
        raise MalformedFile("too short to be a safetensors file")
    size = int.from_bytes(beginning[:8], "little")
    if size > HEADER_LIMIT:
        raise MalformedFile(f"not a safetensors file, or its header is longer than {HEADER_LIMIT} bytes")
    return 8 + size


def parse(beginning: bytes | bytearray) -> Header:
    """The header of a file from its first bytes, as many as `data_start` says, or more; raises MalformedFile."""
    end = data_start(beginning)
    if end > len(beginning):
        raise MalformedFile("not a safetensors file, or truncated within its header")
    try:
        header = json.loads(beginning[8:end])
    except (ValueError, RecursionError) as error:
        raise MalformedFile(f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise MalformedFile("the header is not an object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise MalformedFile("the metadata must be strings")
    tensors = sorted((_entry(*item) for item in header.items()), key=lambda entry: (entry.start, entry.stop))
    reached = 0
    for entry in tensors:
        if entry.start != reached:
            raise MalformedFile(f"{entry.name}: its bytes [{entry.start}, {entry.stop}) overlap or leave a gap")
        reached = entry.stop
    return Header(tuple(tensors), metadata, end)


def _entry(name: str, entry: Any) -> TensorEntry:
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        size = ELEMENT_BYTES[dtype]
    except KeyError as error:
        raise MalformedFile(f"{name}: unknown dtype or missing {error}; floating-point tensors only") from error
    except (TypeError, ValueError) as error:
        raise MalformedFile(f"{name}: not a tensor's entry") from error
    numbers = [*shape, start, stop] if isinstance(shape, list) else [None]
    if not all(type(number) is int and 0 <= number < 2**48 for number in numbers):
        raise MalformedFile(f"{name}: shape and offsets must be whole numbers")
    for length in shape:
        size *= length
    if size != stop - start:
        raise MalformedFile(f"{name}: {stop - start} bytes do not make shape {shape} of {dtype}")
    return TensorEntry(name, dtype, tuple(shape), start, stop)
