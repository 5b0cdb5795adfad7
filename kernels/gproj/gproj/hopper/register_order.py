"""How the Hopper kernels leave what only these kernels read: as it lies in their registers, so nothing is shuffled."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    from flash_attn.cute.interface import BwdConfig

WARP_GROUP_ROWS, BRICK_COLUMNS = 64, 8


@dataclass(frozen=True)
class Accumulators:
    """The order of one tile's FP32 accumulators, (M, N), in memory: warp group, 64 rows, 8 columns of these.

    Attributes:
        m: rows of the instruction's result: of the tile, or its columns where `swapped`.
        n: its columns.
        groups: warp groups that divide the tile.
        along_m: whether they divide M, 64 rows in turn, or N.
        swapped: whether M are the gradient's columns.
        beside: further columns of each group's N.
    """

    m: int
    n: int
    groups: int
    along_m: bool
    swapped: bool
    beside: int = 0

    @classmethod
    def of_dq(cls, tiles: "BwdConfig", head_dim: int, beside: int) -> "Accumulators":
        """What the backward kernel leaves of dQ."""
        groups = 1 if tiles.dQ_single_wg else tiles.num_wg
        return cls(tiles.m_block_size, head_dim, groups, tiles.AtomLayoutMdQ > 1, False, beside)

    @classmethod
    def of_dkv(cls, tiles: "BwdConfig", head_dim: int) -> "Accumulators":
        """What it leaves of dK and dV where query heads share them."""
        by_keys = tiles.AtomLayoutNdKV > 1
        if tiles.dKV_swapAB:
            return cls(head_dim, tiles.n_block_size, tiles.num_wg, not by_keys, True)
        return cls(tiles.n_block_size, head_dim, tiles.num_wg, by_keys, False)

    @property
    def blocks_m(self) -> int:
        """Of 64 rows, in a group."""
        return self.m // WARP_GROUP_ROWS // (self.groups if self.along_m else 1)

    @property
    def bricks(self) -> int:
        """Of 8 columns, in a group."""
        return self.n // BRICK_COLUMNS // (1 if self.along_m else self.groups)

    @property
    def stored_bricks(self) -> int:
        """The same with what stands beside them."""
        return self.bricks + self.beside // BRICK_COLUMNS

    @property
    def piece(self) -> int:
        """Bricks that are converted together: a power of two."""
        return min(self.bricks & -self.bricks, 8)

    @property
    def pieces(self) -> int:
        """Of one tile."""
        return self.groups * self.blocks_m * self.bricks // self.piece

    @property
    def stored(self) -> int:
        """Elements of one tile."""
        return self.groups * self.blocks_m * self.stored_bricks * WARP_GROUP_ROWS * BRICK_COLUMNS


@triton.jit
def bricks_by_rows(flat, BRICKS: tl.constexpr):
    """(64, 8 · BRICKS) from accumulators of wgmma with M = 64, four per thread and store.

    In storage: brick of 8 columns, warp, lane // 4, lane % 4, upper or lower 8 of the warp's 16 rows, 2 columns.
    """
    parts = tl.reshape(flat, (BRICKS, 4, 8, 4, 2, 2))
    return tl.reshape(tl.permute(parts, (1, 4, 2, 0, 3, 5)), (64, 8 * BRICKS))


@triton.jit
def first_columns(row):
    """Where the first column of row 0 to 63 of a brick is stored."""
    return row // 16 * 128 + row % 8 * 16 + row % 16 // 8 * 2


@triton.jit
def second_key(word, index, seq_k, INDEX_BITS: tl.constexpr, SHARE_STEPS: tl.constexpr):
    """From what the forward leaves of a row: the index of its anchor's second key, and the share of that."""
    step = 1 << ((word >> 29) & 7)
    second = tl.where((word >> 28) & 1 == 1, index - step, index + step)
    clear = ((word >> INDEX_BITS) & SHARE_STEPS).to(tl.float32) / SHARE_STEPS
    return tl.minimum(tl.maximum(second, 0), seq_k - 1), (1.0 - clear) * 0.5


@triton.jit
def by_columns(rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows whose columns lie as `ZeroSumForwardSm90` stores them: 32 columns, lane % 4, block of 8, 2 columns."""
    parts = tl.reshape(rows, (ROWS, COLUMNS // 32, 4, 4, 2))
    return tl.reshape(tl.permute(parts, (0, 1, 3, 2, 4)), (ROWS, COLUMNS))
