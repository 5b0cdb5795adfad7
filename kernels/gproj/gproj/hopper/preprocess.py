"""Before the backward kernel: D from O and its residual, log-sum-exp in base two, cleared accumulators."""

import triton
import triton.language as tl

from gproj.hopper.register_order import by_columns

COLUMNS = 128
"""Most columns at a time."""


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
    COLUMNS: tl.constexpr,
    BESIDE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One block of ROWS rows of one head, COLUMNS at a time.

    o, residual, which may be None, and grad are (batch, heads, seq_q, head_dim), the residual's columns as the forward
    kernel stores them; lse is (batch, heads, seq_q); lse_log2, d and row_sums, which may be None, are
    (batch, heads, padded) and dq_accumulator (batch, heads, padded · (head_dim + BESIDE)), all float32 and contiguous.
    """
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    batch, of_batch = head // HEADS, head % HEADS
    of_block = tl.arange(0, ROWS)
    rows = block * ROWS + of_block
    inside = rows < seq_q
    at = rows[:, None].to(tl.int64)
    mask = inside[:, None]
    tile = dq_accumulator + (head * padded + block * ROWS) * (HEAD_DIM + BESIDE)
    total = tl.zeros([ROWS], tl.float32)
    for first in tl.static_range(0, HEAD_DIM, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
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
            full += by_columns(lost.to(tl.float32), ROWS, COLUMNS)
        total += tl.sum(do.to(tl.float32) * full, 1)
        cleared = tile + first * ROWS + of_block[:, None] * COLUMNS + tl.arange(0, COLUMNS)
        tl.store(cleared, tl.zeros([ROWS, COLUMNS], tl.float32))
    if BESIDE > 0:
        cleared = tile + HEAD_DIM * ROWS + of_block[:, None] * BESIDE + tl.arange(0, BESIDE)
        tl.store(cleared, tl.zeros([ROWS, BESIDE], tl.float32))
    sums = tl.load(lse + head * seq_q + rows, inside, 0.0)
    # A row without a visible key has the sum minus infinity; its scores are masked, and must meet a finite number.
    sums = tl.where(sums == float("-inf"), 0.0, sums * 1.4426950408889634)
    place = head * padded + rows
    tl.store(lse_log2 + place, sums)
    tl.store(d + place, total)
    if row_sums is not None:
        tl.store(row_sums + place, tl.zeros([ROWS], tl.float32))
