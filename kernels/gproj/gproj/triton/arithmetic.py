"""Rounding, operands of tensor cores and addresses of tiles: what the three kernels use unchanged.

Triton's interpreter multiplies the raw bits of bfloat16 operands and truncates float32 to bfloat16. There, operands are
float32 (exact, every BF16 and FP16 value is one) and rounding is done on the bits; compiled kernels take the cast.
"""

import triton
import triton.language as tl
from triton import knobs

INTERPRETED = tl.constexpr(knobs.runtime.interpret)
ONES = tl.constexpr(8)  # columns of ones: one mma.sync from registers, which no wgmma has to wait for
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def rounded(x, dtype: tl.constexpr):
    """float32 `x` rounded to nearest even: a tensor of `dtype`, or its values as float32 under the interpreter."""
    if INTERPRETED:
        if dtype == tl.bfloat16:
            bits = x.to(tl.uint32, bitcast=True)
            bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
            result = tl.where(x == x, bits.to(tl.float32, bitcast=True), float("nan"))
        else:
            result = x.to(dtype).to(tl.float32)
    else:
        result = x.to(dtype)
    return result


@triton.jit
def narrowed(x, dtype: tl.constexpr):
    """What `rounded` made as a tensor of `dtype`, to be stored; the interpreter's cast would lose subnormal BF16."""
    if INTERPRETED:
        if dtype == tl.bfloat16:
            x = (x.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
        else:
            x = x.to(dtype)
    return x


@triton.jit
def no_sums(ROWS: tl.constexpr):
    """Row sums before anything is added."""
    return tl.zeros([ROWS, ONES], tl.float32)


@triton.jit
def add_row_sums(sums, x, dtype: tl.constexpr):
    """Add the row sums of `x`, as `rounded` made it, on the tensor cores: exact products with ones, summed in float32.

    Widening and adding every element costs the other pipes more than a few columns cost these.
    """
    ones = tl.full([x.shape[1], ONES], 1.0, tl.float32 if INTERPRETED else dtype)
    return tl.dot(x, ones, sums)


@triton.jit
def row_sums(sums):
    """One sum per row, of the equal columns."""
    return tl.sum(sums, 1) * (1.0 / ONES)


@triton.jit
def bound(x):
    """A loop's bound. Triton 3.6's interpreter converts it in a way that numpy 2.4 no longer allows."""
    if INTERPRETED:
        return tl.cast(x, tl.int32).handle.data.item()
    else:
        return x


@triton.jit
def tile_offsets(rows, stride_row, columns, stride_column, WIDE: tl.constexpr):
    """Element offsets of a (rows, columns) tile; 64-bit where the strides reach beyond 2^31 within one tile."""
    if WIDE:
        rows = rows.to(tl.int64)
        columns = columns.to(tl.int64)
    return rows[:, None] * stride_row + columns[None, :] * stride_column


@triton.jit
def load_tile(base, offsets, rows, limit, columns, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BOUND: tl.constexpr):
    """A tile of operands, zero beyond HEAD_DIM and, where BOUND, beyond row `limit`."""
    if BOUND:
        if HEAD_DIM == BLOCK_D:
            tile = tl.load(base + offsets, mask=rows[:, None] < limit, other=0.0)
        else:
            tile = tl.load(base + offsets, mask=(rows[:, None] < limit) & (columns[None, :] < HEAD_DIM), other=0.0)
    else:
        if HEAD_DIM == BLOCK_D:
            tile = tl.load(base + offsets)
        else:
            tile = tl.load(base + offsets, mask=columns[None, :] < HEAD_DIM, other=0.0)
    if INTERPRETED:
        tile = tile.to(tl.float32)
    return tile


@triton.jit
def store_tile(base, offsets, x, rows, limit, columns, HEAD_DIM: tl.constexpr):
    """Round float32 `x` to the tensor's type and store what lies inside it."""
    dtype: tl.constexpr = base.dtype.element_ty
    tl.store(
        base + offsets,
        narrowed(rounded(x, dtype), dtype),
        mask=(rows[:, None] < limit) & (columns[None, :] < HEAD_DIM),
    )


@triton.jit
def sequence(batch, cu_seqlens, seqlen, VARLEN: tl.constexpr):
    """First row of a sequence in the packed tensor (0 when not packed) and its length."""
    if VARLEN:
        start = tl.load(cu_seqlens + batch).to(tl.int64)
        length = (tl.load(cu_seqlens + batch + 1).to(tl.int64) - start).to(tl.int32)
    else:
        start = tl.cast(0, tl.int64)
        length = tl.cast(seqlen, tl.int32)
    return start, length


@triton.jit
def head_base(tensor, strides, batch, head, start):
    """Pointer to row `start` of one head; strides are (batch, head, row, column) in elements."""
    return (
        tensor
        + tl.cast(batch, tl.int64) * strides[0]
        + tl.cast(head, tl.int64) * strides[1]
        + tl.cast(start, tl.int64) * strides[2]
    )
