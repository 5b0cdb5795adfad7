"""Before the backward kernel: D from O and its residual, log-sum-exp in base two, cleared accumulators."""

import triton
import triton.language as tl

from gproj.hopper.register_order import by_columns


@triton.jit
def preprocess_kernel(
    o,
    residual,
    grad,
    lse,
    lse_log2,
    d,
    row_sums,
    dq_accumulator,
    o_strides,
    residual_strides,
    grad_strides,
    seq_q,
    padded,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One block of ROWS rows of one head.

    o, residual, which may be None, and grad are (batch, heads, seq_q, head_dim), the residual's columns as the forward
    kernel stores them; lse is (batch, heads, seq_q); lse_log2, d and row_sums are
    (batch, heads, padded) and dq_accumulator (batch, heads, padded · head_dim), all float32 and contiguous.
    """
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    batch, of_batch = head // HEADS, head % HEADS
    rows, columns = block * ROWS + tl.arange(0, ROWS), tl.arange(0, HEAD_DIM)
    inside = rows < seq_q
    at = rows[:, None].to(tl.int64)
    mask = inside[:, None]
    o_rows = tl.load(o + batch * o_strides[0] + of_batch * o_strides[1] + at * o_strides[2] + columns, mask, 0.0)
    do = tl.load(
        grad + batch * grad_strides[0] + of_batch * grad_strides[1] + at * grad_strides[2] + columns, mask, 0.0
    )
    full = o_rows.to(tl.float32)
    if residual is not None:
        lost = tl.load(
            residual
            + batch * residual_strides[0]
            + of_batch * residual_strides[1]
            + at * residual_strides[2]
            + columns,
            mask,
            0.0,
        )
        full += by_columns(lost.to(tl.float32), ROWS, HEAD_DIM)
    total = tl.sum(do.to(tl.float32) * full, 1)
    sums = tl.load(lse + head * seq_q + rows, inside, 0.0)
    # A row without a visible key has the sum minus infinity; its scores are masked, and must meet a finite number.
    sums = tl.where(sums == float("-inf"), 0.0, sums * 1.4426950408889634)
    place = head * padded + rows
    tl.store(lse_log2 + place, sums)
    tl.store(d + place, total)
    tl.store(row_sums + place, tl.zeros([ROWS], tl.float32))
    zeros = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    tl.store(dq_accumulator + place[:, None] * HEAD_DIM + columns, zeros)
