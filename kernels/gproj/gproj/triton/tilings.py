"""Tile sizes per kernel, method and head_dim: a small measured table, no search at the first call."""

from dataclasses import dataclass

import torch

from gproj.problem import ZEROSUM


@dataclass(frozen=True)
class Tiling:
    """Launch settings of one kernel.

    Attributes:
        block_m: query rows of a tile.
        block_n: keys of a tile.
        num_warps: warps of a program.
        num_stages: depth of the loads' pipeline.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


FORWARD, DQ, DKDV = "forward", "dq", "dkdv"

# Shared memory decides what fits: 227 KiB on Hopper and data-centre Blackwell, 163 KiB on A100, 99 KiB elsewhere.
LARGE, MIDDLE, SMALL = "large", "middle", "small"

_TABLE: dict[tuple[str, str, int], Tiling] = {
    (LARGE, FORWARD, 64): Tiling(64, 64, 4, 3),
    (LARGE, FORWARD, 128): Tiling(128, 128, 8, 3),
    (LARGE, FORWARD, 256): Tiling(128, 64, 8, 2),
    (LARGE, DQ, 64): Tiling(64, 64, 4, 3),
    (LARGE, DQ, 128): Tiling(64, 64, 4, 2),
    (LARGE, DQ, 256): Tiling(64, 32, 8, 2),
    (LARGE, DKDV, 64): Tiling(64, 64, 4, 2),
    (LARGE, DKDV, 128): Tiling(64, 128, 8, 2),
    (LARGE, DKDV, 256): Tiling(32, 64, 8, 2),
    (MIDDLE, FORWARD, 64): Tiling(128, 64, 4, 3),
    (MIDDLE, FORWARD, 128): Tiling(128, 64, 8, 2),
    (MIDDLE, FORWARD, 256): Tiling(64, 32, 4, 2),
    (MIDDLE, DQ, 64): Tiling(64, 64, 4, 2),
    (MIDDLE, DQ, 128): Tiling(64, 64, 8, 2),
    (MIDDLE, DQ, 256): Tiling(64, 32, 8, 1),
    (MIDDLE, DKDV, 64): Tiling(64, 64, 4, 2),
    (MIDDLE, DKDV, 128): Tiling(32, 64, 4, 2),
    (MIDDLE, DKDV, 256): Tiling(32, 64, 8, 1),
    (SMALL, FORWARD, 64): Tiling(64, 64, 4, 2),
    (SMALL, FORWARD, 128): Tiling(64, 32, 4, 2),
    (SMALL, FORWARD, 256): Tiling(32, 32, 4, 1),
    (SMALL, DQ, 64): Tiling(64, 32, 4, 2),
    (SMALL, DQ, 128): Tiling(64, 32, 4, 1),
    (SMALL, DQ, 256): Tiling(32, 16, 4, 1),
    (SMALL, DKDV, 64): Tiling(32, 64, 4, 2),
    (SMALL, DKDV, 128): Tiling(32, 64, 4, 1),
    (SMALL, DKDV, 256): Tiling(16, 32, 4, 1),
}
# What one method needs otherwise than the others.
_OF_METHOD: dict[tuple[str, str, int, str], Tiling] = {(LARGE, FORWARD, 128, ZEROSUM): Tiling(64, 64, 4, 3)}
_INTERPRETED = Tiling(16, 32, 4, 1)


def block_of(head_dim: int) -> int:
    """Columns of a tile: head_dim rounded up to a power of two, at least 16 (the tensor cores' least)."""
    return max(16, 1 << (head_dim - 1).bit_length())


def shared_memory(device: torch.device) -> str:
    """Which column of the table a device takes."""
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) == (8, 0):
        return MIDDLE
    return LARGE if major in (9, 10) else SMALL


def tiling(kernel: str, method: str, head_dim: int, device: torch.device) -> Tiling:
    """Settings of one launch; small tiles under the interpreter, which pays per operation."""
    if device.type == "cpu":
        return _INTERPRETED
    size, block = shared_memory(device), max(64, block_of(head_dim))
    return _OF_METHOD.get((size, kernel, block, method), _TABLE[size, kernel, block])
