"""After the backward kernel: FP32 accumulators, in the order of its registers, to gradients; dQ loses what r leaks."""

import triton
import triton.language as tl

from gproj.hopper.register_order import by_columns, tile_of_accumulators


@triton.jit
def postprocess_kernel(
    accumulator,
    result,
    row_sums,
    strongest,
    keys,
    beyond,
    result_strides,
    key_strides,
    beyond_strides,
    seq,
    padded,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    SPLIT_ROWS: tl.constexpr,
):
    """One tile of ROWS rows of one head: scale · (accumulator − r · (anchor + beyond)), rounded.

    accumulator is (batch, heads, padded · head_dim), row_sums (batch, heads, padded), strongest (batch, heads, seq);
    result and beyond
    are (batch, heads, seq, head_dim), keys (batch, heads // GROUP, seq_k, head_dim). The columns of beyond lie as the
    forward kernel stores them.
    """
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    batch, of_batch = head // HEADS, head % HEADS
    size: tl.constexpr = ROWS * HEAD_DIM
    start = (head * padded + block * ROWS) * HEAD_DIM
    x = tile_of_accumulators(tl.load(accumulator + start + tl.arange(0, size)), HEAD_DIM, SPLIT_ROWS)
    rows, columns = block * ROWS + tl.arange(0, ROWS), tl.arange(0, HEAD_DIM)
    inside = rows < seq
    if row_sums is not None:
        r = tl.load(row_sums + head * padded + rows)
        index = tl.load(strongest + head * seq + rows, inside, 0).to(tl.int64)
        anchors = tl.load(
            keys
            + batch * key_strides[0]
            + (of_batch // GROUP) * key_strides[1]
            + index[:, None] * key_strides[2]
            + columns
        )
        taken = anchors.to(tl.float32)
        if beyond is not None:
            more = tl.load(
                beyond
                + batch * beyond_strides[0]
                + of_batch * beyond_strides[1]
                + rows[:, None].to(tl.int64) * beyond_strides[2]
                + columns,
                inside[:, None],
                0.0,
            )
            taken += by_columns(more.to(tl.float32), ROWS, HEAD_DIM)
        x -= r[:, None] * taken
    tl.store(
        result
        + batch * result_strides[0]
        + of_batch * result_strides[1]
        + rows[:, None].to(tl.int64) * result_strides[2]
        + columns,
        (x * scale).to(result.dtype.element_ty),
        inside[:, None],
    )
