"""Input sets from the bytes of a file; `gprojci_suite.contract.input_file` says what it must hold."""

from pathlib import Path

from gprojci_suite import exchange
from gprojci_suite.contract import input_file, tensor_file
from gprojci_suite.contract.input_file import BYTES_LIMIT, PARTS
from gprojci_suite.contract.tensor_file import MalformedFile
from gprojci_suite.inputs.sets import InputError, InputSet, LayerTensors


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
        found = input_file.describe(tensor_file.parse(data))
        tensors, _ = exchange.parse(data)
    except MalformedFile as error:
        raise InputError(f"{name}: {error}") from error
    layers = {
        layer.layer: LayerTensors(**{part: tensors[f"{layer.layer}.{part}"] for part in PARTS})
        for layer in found.layers
    }
    return InputSet(name, layers, found.causal, found.softmax_scale, found.provenance)
