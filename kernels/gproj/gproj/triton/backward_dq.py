"""dQ by blocks of query rows, and D for the kernel of dK and dV that runs after it."""

import triton
import triton.language as tl

from gproj.triton.arithmetic import (
    LOG2E,
    add_row_sums,
    bound,
    head_base,
    load_tile,
    no_sums,
    rounded,
    row_sums,
    sequence,
    store_tile,
    tile_offsets,
)


@triton.jit
def project_to_zero_row_sum(dq, row_sum, pk, p_sum):
    """dQ − r·(P·K): r the row sum of the rounded dS, the rounded P divided by its own row sum."""
    return dq - pk * (row_sum / tl.where(p_sum == 0.0, 1.0, p_sum))[:, None]


@triton.jit
def subtract_anchor(dq, row_sum, anchor):
    """dQ − r·K_argmax: what the rounding of dS leaves, taken out along the row's strongest key."""
    return dq - row_sum[:, None] * anchor.to(tl.float32)


@triton.jit
def _visit_keys(
    dq,
    row_sum,
    pk,
    p_sum,
    excess,
    q,
    do,
    lse2,
    d,
    k,
    v,
    k_offsets,
    v_offsets,
    stride_k,
    stride_v,
    rows,
    columns,
    begin,
    end,
    seq_k,
    shift,
    exponent_scale,
    dtype: tl.constexpr,
    GPROJ: tl.constexpr,
    REPAIR_DK: tl.constexpr,
    ZEROSUM: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    for first in tl.range(bound(begin), bound(end), BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        k_base = k + tl.cast(first, tl.int64) * stride_k
        v_base = v + tl.cast(first, tl.int64) * stride_v
        k_tile = load_tile(k_base, k_offsets, keys, seq_k, columns, HEAD_DIM, BLOCK_D, MASKED)
        v_tile = load_tile(v_base, v_offsets, keys, seq_k, columns, HEAD_DIM, BLOCK_D, MASKED)
        scores = tl.dot(q, tl.trans(k_tile))
        p = tl.exp2(scores * exponent_scale - lse2[:, None])
        if MASKED:
            if CAUSAL:  # which hides all keys beyond the last from every row but those that are not stored
                visible = keys[None, :] <= rows[:, None] + shift
            else:
                visible = keys[None, :] < seq_k
            p = tl.where(visible, p, 0.0)
        dp = tl.dot(do, tl.trans(v_tile))
        ds = p * (dp - d[:, None])
        if REPAIR_DK:
            excess += tl.sum(ds, 1)
        ds = rounded(ds, dtype)
        dq = tl.dot(ds, k_tile, dq)
        if GPROJ or ZEROSUM:
            row_sum = add_row_sums(row_sum, ds, dtype)
        if GPROJ:
            p_rounded = rounded(p, dtype)
            p_sum = add_row_sums(p_sum, p_rounded, dtype)
            pk = tl.dot(p_rounded, k_tile, pk)
    return dq, row_sum, pk, p_sum, excess


@triton.jit
def backward_dq_kernel(
    q,
    k,
    v,
    o,
    residual,
    do,
    lse,
    strongest_key,
    d,
    dq,
    cu_seqlens_q,
    cu_seqlens_k,
    stride_q,
    stride_k,
    stride_v,
    stride_o,
    stride_residual,
    stride_do,
    stride_dq,
    stride_lse,
    heads,
    group,
    seq_q,
    seq_k,
    row_blocks,
    scale,
    exponent_scale,
    GPROJ: tl.constexpr,
    REPAIR_DK: tl.constexpr,
    ZEROSUM: tl.constexpr,
    CAUSAL: tl.constexpr,
    VARLEN: tl.constexpr,
    WIDE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program per (batch, head, block of BLOCK_M queries); no atomics, so the same bits on every run."""
    dtype: tl.constexpr = q.dtype.element_ty
    program = tl.program_id(0)
    block = program % row_blocks
    batch = program // row_blocks // heads
    head = program // row_blocks % heads
    if CAUSAL:
        block = row_blocks - 1 - block  # the longest first
    start_q, seq_q = sequence(batch, cu_seqlens_q, seq_q, VARLEN)
    start_k, seq_k = sequence(batch, cu_seqlens_k, seq_k, VARLEN)
    first_row = block * BLOCK_M
    if first_row >= seq_q:
        return
    rows = first_row + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    tile_rows = tl.arange(0, BLOCK_M)
    shift = seq_k - seq_q
    k = head_base(k, stride_k, batch, head // group, start_k)
    v = head_base(v, stride_v, batch, head // group, start_k)
    q = head_base(q, stride_q, batch, head, start_q + first_row)
    do = head_base(do, stride_do, batch, head, start_q + first_row)
    o = head_base(o, stride_o, batch, head, start_q + first_row)
    k_offsets = tile_offsets(tl.arange(0, BLOCK_N), stride_k[2], columns, stride_k[3], WIDE)
    v_offsets = tile_offsets(tl.arange(0, BLOCK_N), stride_v[2], columns, stride_v[3], WIDE)
    o_offsets = tile_offsets(tile_rows, stride_o[2], columns, stride_o[3], WIDE)
    do_offsets = tile_offsets(tile_rows, stride_do[2], columns, stride_do[3], WIDE)
    q_offsets = tile_offsets(tile_rows, stride_q[2], columns, stride_q[3], WIDE)
    do_tile = load_tile(do, do_offsets, rows, seq_q, columns, HEAD_DIM, BLOCK_D, True)
    o_tile = load_tile(o, o_offsets, rows, seq_q, columns, HEAD_DIM, BLOCK_D, True).to(tl.float32)
    if ZEROSUM:
        residual = head_base(residual, stride_residual, batch, head, start_q + first_row)
        residual_offsets = tile_offsets(tile_rows, stride_residual[2], columns, stride_residual[3], WIDE)
        o_tile += load_tile(residual, residual_offsets, rows, seq_q, columns, HEAD_DIM, BLOCK_D, True).to(tl.float32)
    d_rows = tl.sum(do_tile.to(tl.float32) * o_tile, 1)
    inside = rows < seq_q
    statistics = tl.cast(batch, tl.int64) * stride_lse[0] + tl.cast(head, tl.int64) * stride_lse[1] + start_q
    lse2 = tl.load(lse + statistics + rows, mask=inside, other=0.0) * LOG2E
    q_tile = load_tile(q, q_offsets, rows, seq_q, columns, HEAD_DIM, BLOCK_D, True)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    # Only the projection needs P·K; a method without it carries one column.
    pk = tl.zeros([BLOCK_M, BLOCK_D if GPROJ else 1], tl.float32)
    row_sum = no_sums(BLOCK_M)
    p_sum = no_sums(BLOCK_M)
    excess = tl.zeros([BLOCK_M], tl.float32)
    if CAUSAL:
        end = tl.maximum(tl.minimum(seq_k, first_row + BLOCK_M + shift), 0)
        full = tl.maximum(tl.minimum(seq_k, first_row + 1 + shift), 0) // BLOCK_N * BLOCK_N
    else:
        end = seq_k
        full = seq_k // BLOCK_N * BLOCK_N
    acc, row_sum, pk, p_sum, excess = _visit_keys(
        acc, row_sum, pk, p_sum, excess, q_tile, do_tile, lse2, d_rows, k, v, k_offsets, v_offsets,
        stride_k[2], stride_v[2], rows, columns, 0, full, seq_k, shift, exponent_scale,
        dtype, GPROJ, REPAIR_DK, ZEROSUM, CAUSAL, False, HEAD_DIM, BLOCK_N, BLOCK_D,
    )  # fmt: skip
    acc, row_sum, pk, p_sum, excess = _visit_keys(
        acc, row_sum, pk, p_sum, excess, q_tile, do_tile, lse2, d_rows, k, v, k_offsets, v_offsets,
        stride_k[2], stride_v[2], rows, columns, full, end, seq_k, shift, exponent_scale,
        dtype, GPROJ, REPAIR_DK, ZEROSUM, CAUSAL, True, HEAD_DIM, BLOCK_N, BLOCK_D,
    )  # fmt: skip

    # With REPAIR_DK, the D of which the rows of dS sum to zero: P sums to one, so what they sum to is what D lacks.
    tl.store(d + statistics + rows, d_rows + excess, mask=inside)
    if GPROJ:
        acc = project_to_zero_row_sum(acc, row_sums(row_sum), pk, row_sums(p_sum))
    if ZEROSUM:
        strongest = tl.load(strongest_key + statistics + rows, mask=inside, other=0).to(tl.int64)
        anchor = tl.load(
            k + strongest[:, None] * stride_k[2] + columns[None, :] * tl.cast(stride_k[3], tl.int64),
            mask=(strongest[:, None] < seq_k) & (columns[None, :] < HEAD_DIM),
            other=0.0,
        )
        acc = subtract_anchor(acc, row_sums(row_sum), anchor)
    dq = head_base(dq, stride_dq, batch, head, start_q + first_row)
    dq_offsets = tile_offsets(tile_rows, stride_dq[2], columns, stride_dq[3], WIDE)
    store_tile(dq, dq_offsets, acc * scale, rows, seq_q, columns, HEAD_DIM)
