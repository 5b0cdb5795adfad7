"""Which heads of a captured layer are kept, and the file that holds them and their origin: whole or not at all."""

import os
import platform
import random
import statistics
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch

from gprojci_suite import __version__, exchange, expected
from gprojci_suite.contract.input_file import PARTS
from gprojci_suite.inputs import InputSet, LayerTensors, files

Choice = Literal["error", "random"]
EMULATED = "emulated-fa3"
"""Whose dq error `choose="error"` goes by."""


def kept_heads(item: InputSet, layer: str, count: int | None, choose: Choice, seed: str) -> list[int]:
    """Key/value heads of a layer that are kept, ascending; each keeps all query heads that share it.

    By error: the larger half of `count` are those with the largest dq error by emulation, the others those nearest to
    the median. A key/value head has the error of its worst query head.

    Args:
        item: all captured layers with all heads.
        layer: one of them.
        count: how many are kept; None for all.
        choose: by error or at random.
        seed: of the random choice.
    """
    tensors = item.layers[layer]
    total, group = tensors.k.shape[1], tensors.q.shape[1] // tensors.k.shape[1]
    if count is None or count >= total:
        return list(range(total))
    if choose == "random":
        return sorted(random.Random(seed).sample(range(total), count))  # noqa: S311 (a sample, not a secret)
    by_query_head = expected.dq_error_by_head(EMULATED, item, layer)
    errors = [max(by_query_head[head * group + i] for i in range(group)) for head in range(total)]
    ranked = sorted(range(total), key=lambda head: -errors[head])
    worst, rest = ranked[: (count + 1) // 2], ranked[(count + 1) // 2 :]
    median = statistics.median(errors)
    nearest = sorted(rest, key=lambda head: abs(errors[head] - median))
    return sorted([*worst, *nearest[: count // 2]])


def with_heads(tensors: LayerTensors, heads: list[int]) -> LayerTensors:
    """A layer with some of its key/value heads and the query heads that share them."""
    group = tensors.q.shape[1] // tensors.k.shape[1]
    queries = [head * group + i for head in heads for i in range(group)]
    return LayerTensors(tensors.q[:, queries], tensors.k[:, heads], tensors.v[:, heads], tensors.do[:, queries])


def origin(device: torch.device) -> dict[str, str]:
    """Metadata of any input set that is captured on a device now: on what, with what, and when."""
    return {
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "captured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "suite": __version__,
    }


def write(path: Path, layers: Mapping[str, LayerTensors], metadata: Mapping[str, str]) -> None:
    """Write an input set and read it back before it takes its name; nothing stays when that fails.

    Raises:
        InputError: when what was written is no input set, such as one with NaN.
        OSError: when it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another suffix, so that no loader takes it for a finished set.
    unfinished = path.parent / f".{path.name}.{os.getpid()}.part"
    try:
        tensors = {f"{layer}.{part}": getattr(found, part) for layer, found in layers.items() for part in PARTS}
        exchange.save(unfinished, tensors, metadata)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        files.read(unfinished, path.name)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
