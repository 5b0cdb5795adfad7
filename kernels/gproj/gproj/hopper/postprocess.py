"""After the backward kernel: FP32 accumulators, in the order of its registers, to gradients; dQ loses r·anchor."""

import triton
import triton.language as tl


@triton.jit
def _tile_of_accumulators(flat, HEAD_DIM: tl.constexpr, SPLIT_ROWS: tl.constexpr):
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
def postprocess_kernel(
    accumulator,
    result,
    row_sums,
    strongest,
    keys,
    result_strides,
    key_strides,
    seq,
    padded,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    SPLIT_ROWS: tl.constexpr,
    ANCHORED: tl.constexpr,
):
    """One tile of ROWS rows of one head: scale · (accumulator − r · anchor), rounded.

    accumulator is (batch, heads, padded · head_dim), row_sums (batch, heads, padded), strongest (batch, heads, seq);
    result is (batch, heads, seq, head_dim), keys (batch, heads // GROUP, seq_k, head_dim).
    """
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    batch, of_batch = head // HEADS, head % HEADS
    size: tl.constexpr = ROWS * HEAD_DIM
    start = (head * padded + block * ROWS) * HEAD_DIM
    x = _tile_of_accumulators(tl.load(accumulator + start + tl.arange(0, size)), HEAD_DIM, SPLIT_ROWS)
    rows, columns = block * ROWS + tl.arange(0, ROWS), tl.arange(0, HEAD_DIM)
    inside = rows < seq
    if ANCHORED:
        r = tl.load(row_sums + head * padded + rows)
        index = tl.load(strongest + head * seq + rows, inside, 0).to(tl.int64)
        anchors = tl.load(
            keys
            + batch * key_strides[0]
            + (of_batch // GROUP) * key_strides[1]
            + index[:, None] * key_strides[2]
            + columns
        )
        x -= r[:, None] * anchors.to(tl.float32)
    tl.store(
        result
        + batch * result_strides[0]
        + of_batch * result_strides[1]
        + rows[:, None].to(tl.int64) * result_strides[2]
        + columns,
        (x * scale).to(result.dtype.element_ty),
        inside[:, None],
    )
