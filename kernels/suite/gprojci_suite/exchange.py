"""Tensors between processes and from files: safetensors, read and written with torch alone.

The measured environments hold torch and the subject, nothing else may be assumed there; so this format, which is a
JSON header and raw bytes, is read and written here. Never pickle.
"""

import ctypes
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
HEADER_LIMIT = 1_000_000


class MalformedFile(ValueError):
    """The bytes are not a safetensors file of floating-point tensors."""


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors (any device, any strides) to `path`."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    chunks: list[Tensor] = []
    offset = 0
    for name, tensor in tensors.items():
        chunk = tensor.detach().to("cpu").contiguous()
        size = chunk.numel() * chunk.element_size()
        header[name] = {
            "dtype": NAMES[chunk.dtype],
            "shape": list(chunk.shape),
            "data_offsets": [offset, offset + size],
        }
        chunks.append(chunk)
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for chunk in chunks:
            file.write(ctypes.string_at(chunk.data_ptr(), chunk.numel() * chunk.element_size()))


def load(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file; raises MalformedFile, or OSError when it cannot be read."""
    return parse(path.read_bytes())[0]


def parse(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """(tensors, metadata) of a safetensors file's bytes; raises MalformedFile for anything not exactly right."""
    if len(data) < 8:
        raise MalformedFile("too short to be a safetensors file")
    size = int.from_bytes(data[:8], "little")
    if size > HEADER_LIMIT or size > len(data) - 8:
        raise MalformedFile("not a safetensors file, or truncated within its header")
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError) as error:
        raise MalformedFile(f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise MalformedFile("the header is not an object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise MalformedFile("the metadata must be strings")
    body = bytearray(data[8 + size :])
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, dtype, shape, start, stop in sorted((_entry(*item) for item in header.items()), key=lambda e: e[3:]):
        if start != end or stop > len(body):
            raise MalformedFile(f"{name}: its bytes [{start}, {stop}) overlap, leave a gap or lie beyond the end")
        end = stop
        count = (stop - start) // dtype.itemsize
        flat = torch.frombuffer(body, dtype=dtype, count=count, offset=start) if count else torch.empty(0, dtype=dtype)
        tensors[name] = flat.view(shape)
    if end != len(body):
        raise MalformedFile(f"{len(body) - end} bytes belong to no tensor")
    return tensors, metadata


def _entry(name: str, entry: Any) -> tuple[str, torch.dtype, list[int], int, int]:
    try:
        dtype, shape, (start, stop) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    except KeyError as error:
        raise MalformedFile(f"{name}: unknown dtype or missing {error}; floating-point tensors only") from error
    except (TypeError, ValueError) as error:
        raise MalformedFile(f"{name}: not a tensor's entry") from error
    numbers = [*shape, start, stop] if isinstance(shape, list) else [None]
    if not all(type(number) is int and 0 <= number < 2**48 for number in numbers):
        raise MalformedFile(f"{name}: shape and offsets must be whole numbers")
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size != stop - start:
        raise MalformedFile(f"{name}: {stop - start} bytes do not make shape {shape} of {entry['dtype']}")
    return name, dtype, shape, start, stop
