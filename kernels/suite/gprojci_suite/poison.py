"""Memory that a backend has not written reads as NaN, in Python, C++ and Triton alike. Imports nothing but torch.

The byte 255 repeated is NaN in every floating type. On a CPU the C library fills what it allocates (glibc's `mallopt`
with M_PERTURB; another C library leaves memory as it is). On CUDA the free blocks of torch's allocator are filled
before each pass: one block large enough to be split into all that a pass asks for, those for small tensors, and those
that the pass before gave back. What a backend takes from the driver, on a stream of its own, or again within one pass,
is not reached.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

M_PERTURB = -6
ALLOCATED_255 = 0x100
"""glibc fills with the lowest byte of this exclusive-or 255, and not at all when the whole number is zero."""

BYTE = 255
BLOCK_FACTOR = 8
SMALL_BLOCKS = 64


@contextmanager
def poisoned(device: str, output_bytes: int) -> Iterator[Callable[[], None]]:
    """Allocations of the block are NaN until they are written.

    Args:
        device: cpu or cuda.
        output_bytes: size of what the call returns; on CUDA `BLOCK_FACTOR` times as much is filled.

    Yields:
        What to call between two passes, so that the second does not find what the first gave back.
    """
    if device == "cuda":
        torch.cuda.empty_cache()
        _fill_new_blocks(output_bytes)
    else:
        _perturb(ALLOCATED_255)
    try:
        yield _fill_free_blocks if device == "cuda" else _nothing
    finally:
        if device == "cuda":
            torch.cuda.empty_cache()  # The other processes need the memory.
        else:
            _perturb(0)


def _perturb(value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_PERTURB, value)


def _nothing() -> None:
    """Between two passes on a CPU: the C library fills whatever it hands out."""


def _fill_new_blocks(output_bytes: int) -> None:
    free, _ = torch.cuda.mem_get_info()
    _fill([2**20] * SMALL_BLOCKS + [min(BLOCK_FACTOR * output_bytes + 2**25, free // 2)])


def _fill_free_blocks() -> None:
    """Every free block that the allocator has, each by a tensor of exactly its size."""
    torch.cuda.synchronize()
    blocks = [block for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]]
    _fill([block["size"] for block in blocks if block["state"] == "inactive"])


def _fill(sizes: list[int]) -> None:
    filled = []
    try:
        for size in sizes:
            filled.append(torch.full((size,), BYTE, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()  # What is left goes unpoisoned: the ruler's filling is no failure of the backend.
    filled.clear()
    torch.cuda.synchronize()
