"""How the Hopper kernels leave what only these kernels read: as it lies in their registers, so nothing is shuffled."""

import triton
import triton.language as tl


@triton.jit
def tile_of_accumulators(flat, HEAD_DIM: tl.constexpr, SPLIT_ROWS: tl.constexpr):
    """(rows, head_dim) from two warp groups' accumulators of wgmma with M = 64, four per thread and store.

    In storage: group, block of 8 columns, warp, lane // 4, lane % 4, upper or lower 8 of the warp's 16 rows, 2 columns.
    The groups divide the rows of a tile, or its columns.
    """
    if SPLIT_ROWS:
        parts = tl.reshape(flat, (2, HEAD_DIM // 8, 4, 8, 4, 2, 2))
        return tl.reshape(tl.permute(parts, (0, 2, 5, 3, 1, 4, 6)), (128, HEAD_DIM))
    else:
        parts = tl.reshape(flat, (2, HEAD_DIM // 16, 4, 8, 4, 2, 2))
        return tl.reshape(tl.permute(parts, (2, 5, 3, 0, 1, 4, 6)), (64, HEAD_DIM))


@triton.jit
def by_columns(rows, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Rows whose columns lie as `ZeroSumForwardSm90` stores them: 32 columns, lane % 4, block of 8, 2 columns."""
    parts = tl.reshape(rows, (ROWS, HEAD_DIM // 32, 4, 4, 2))
    return tl.reshape(tl.permute(parts, (0, 1, 3, 2, 4)), (ROWS, HEAD_DIM))
