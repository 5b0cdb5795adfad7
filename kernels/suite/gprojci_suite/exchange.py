"""Tensors between processes and from files: safetensors, read and written with torch alone.

The measured environments hold torch and the subject, nothing else may be assumed there; so this format, which is a
JSON header and raw bytes, is read and written here. Never pickle.
"""

import ctypes
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gprojci_suite.contract import tensor_file
from gprojci_suite.contract.tensor_file import MalformedFile as MalformedFile

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
ALIGNMENT = 8
NAMES = {dtype: name for name, dtype in DTYPES.items()}


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
    text += b" " * (-len(text) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for chunk in chunks:
            file.write(ctypes.string_at(chunk.data_ptr(), chunk.numel() * chunk.element_size()))


def load(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file; raises MalformedFile, or OSError when it cannot be read."""
    with path.open("rb", buffering=0) as file:
        data = bytearray(os.fstat(file.fileno()).st_size)
        rest = memoryview(data)
        while rest and (count := file.readinto(rest)):
            rest = rest[count:]
    if rest:
        raise MalformedFile("became shorter while it was read")
    return parse(data)[0]


def parse(data: bytes | bytearray) -> tuple[dict[str, Tensor], dict[str, str]]:
    """(tensors, metadata) of a safetensors file's bytes; raises MalformedFile for anything not exactly right.

    The tensors lie in a bytearray that is given, where its header is as long as this module writes them.
    """
    header = tensor_file.parse(data)
    header.check_length(len(data))
    inside = isinstance(data, bytearray) and header.data_start % ALIGNMENT == 0
    body, begin = (data, header.data_start) if inside else (bytearray(data[header.data_start :]), 0)
    tensors: dict[str, Tensor] = {}
    for entry in header.tensors:
        dtype = DTYPES[entry.dtype]
        count = (entry.stop - entry.start) // dtype.itemsize
        empty = torch.empty(0, dtype=dtype)
        flat = torch.frombuffer(body, dtype=dtype, count=count, offset=begin + entry.start) if count else empty
        tensors[entry.name] = flat.view(entry.shape)
    return tensors, dict(header.metadata)
