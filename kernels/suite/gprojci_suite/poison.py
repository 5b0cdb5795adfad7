"""Memory that a backend has not written reads as NaN, in Python, C++ and Triton alike. Imports nothing but torch.

The byte 255 repeated is NaN in every floating type. On a CPU the C library fills what it allocates (glibc's `mallopt`
with M_PERTURB; another C library leaves memory as it is). On CUDA the free blocks of torch's allocator are filled: one
block large enough to be split into all that a call asks for, and those for small tensors. What a backend takes from the
driver, or on a stream of its own, is not reached.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

M_PERTURB = -6
ALLOCATED_255 = 0x100
"""glibc fills with the lowest byte of this exclusive-or 255, and not at all when the whole number is zero."""

BYTE = 255
BLOCK_FACTOR = 8
SMALL_BLOCKS = 64


@contextmanager
def poisoned(device: str, output_bytes: int) -> Iterator[None]:
    """Allocations of the block are NaN until they are written.

    Args:
        device: cpu or cuda.
        output_bytes: size of what the call returns; on CUDA `BLOCK_FACTOR` times as much is filled.
    """
    if device == "cuda":
        torch.cuda.empty_cache()
        _fill_free_blocks(output_bytes)
    else:
        _perturb(ALLOCATED_255)
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.empty_cache()  # The other processes need the memory.
        else:
            _perturb(0)


def _perturb(value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_PERTURB, value)


def _fill_free_blocks(output_bytes: int) -> None:
    free, _ = torch.cuda.mem_get_info()
    sizes = [2**20] * SMALL_BLOCKS + [min(BLOCK_FACTOR * output_bytes + 2**25, free // 2)]
    blocks = [torch.full((size,), BYTE, dtype=torch.uint8, device="cuda") for size in sizes]
    del blocks
    torch.cuda.synchronize()
