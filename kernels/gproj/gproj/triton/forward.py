"""Forward pass: O and log-sum-exp by blocks of query rows, and what the zero-sum method keeps for its backward."""

import triton
import triton.language as tl

from gproj.triton.arithmetic import (
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
def _visit_keys(
    acc,
    top,
    total,
    total_rounded,
    strongest,
    q,
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
        scores = tl.dot(q, tl.trans(k_tile))
        if MASKED:
            if CAUSAL:  # which hides all keys beyond the last from every row but those that are not stored
                visible = keys[None, :] <= rows[:, None] + shift
            else:
                visible = keys[None, :] < seq_k
            scores = tl.where(visible, scores, float("-inf"))
        if ZEROSUM:
            # The low bits of a score carry its key's place, so the maximum says whose it is. What is subtracted is then
            # the maximum only to 2^-17 of itself; the sum of the rounded P makes up for that.
            places = (scores.to(tl.int32, bitcast=True) & -BLOCK_N) | tl.arange(0, BLOCK_N)[None, :]
            ranked = places.to(tl.float32, bitcast=True)
            if MASKED:
                ranked = tl.where(visible, ranked, float("-inf"))
            tile_top = tl.max(ranked, 1)
            winner = first + (tile_top.to(tl.int32, bitcast=True) & (BLOCK_N - 1))
            strongest = tl.where(tile_top > top, winner, strongest)
        else:
            tile_top = tl.max(scores, 1)
        new_top = tl.maximum(top, tile_top)
        if MASKED:
            reached = tl.where(new_top == float("-inf"), 0.0, new_top) * exponent_scale
        else:
            reached = new_top * exponent_scale
        # The product is rounded before the subtraction (the launch forbids contraction): the known repair.
        p = tl.exp2(scores * exponent_scale - reached[:, None])
        decay = tl.exp2(top * exponent_scale - reached)
        total = total * decay + tl.sum(p, 1)
        p_rounded = rounded(p, dtype)
        if ZEROSUM:
            total_rounded = add_row_sums(total_rounded * decay[:, None], p_rounded, dtype)
        v_tile = load_tile(v_base, v_offsets, keys, seq_k, columns, HEAD_DIM, BLOCK_D, MASKED)
        acc = tl.dot(p_rounded, v_tile, acc * decay[:, None])
        top = new_top
    return acc, top, total, total_rounded, strongest


@triton.jit
def forward_kernel(
    q,
    k,
    v,
    o,
    residual,
    lse,
    strongest_key,
    cu_seqlens_q,
    cu_seqlens_k,
    stride_q,
    stride_k,
    stride_v,
    stride_o,
    stride_lse,
    heads,
    group,
    seq_q,
    seq_k,
    row_blocks,
    scale,
    exponent_scale,
    ZEROSUM: tl.constexpr,
    CAUSAL: tl.constexpr,
    VARLEN: tl.constexpr,
    WIDE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program per (batch, head, block of BLOCK_M queries)."""
    dtype: tl.constexpr = q.dtype.element_ty
    program = tl.program_id(0)
    block = program % row_blocks
    batch = program // row_blocks // heads
    head = program // row_blocks % heads
    if CAUSAL:
        block = row_blocks - 1 - block  # the longest first: the last programs to run are short
    start_q, seq_q = sequence(batch, cu_seqlens_q, seq_q, VARLEN)
    start_k, seq_k = sequence(batch, cu_seqlens_k, seq_k, VARLEN)
    first_row = block * BLOCK_M
    if first_row >= seq_q:
        return
    rows = first_row + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    shift = seq_k - seq_q
    q = head_base(q, stride_q, batch, head, start_q + first_row)
    k = head_base(k, stride_k, batch, head // group, start_k)
    v = head_base(v, stride_v, batch, head // group, start_k)
    tile_rows = tl.arange(0, BLOCK_M)
    q_offsets = tile_offsets(tile_rows, stride_q[2], columns, stride_q[3], WIDE)
    k_offsets = tile_offsets(tl.arange(0, BLOCK_N), stride_k[2], columns, stride_k[3], WIDE)
    v_offsets = tile_offsets(tl.arange(0, BLOCK_N), stride_v[2], columns, stride_v[3], WIDE)
    q_tile = load_tile(q, q_offsets, rows, seq_q, columns, HEAD_DIM, BLOCK_D, True)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    total_rounded = no_sums(BLOCK_M)
    strongest = tl.zeros([BLOCK_M], tl.int32)
    if CAUSAL:
        end = tl.maximum(tl.minimum(seq_k, first_row + BLOCK_M + shift), 0)
        full = tl.maximum(tl.minimum(seq_k, first_row + 1 + shift), 0) // BLOCK_N * BLOCK_N
    else:
        end = seq_k
        full = seq_k // BLOCK_N * BLOCK_N
    acc, top, total, total_rounded, strongest = _visit_keys(
        acc, top, total, total_rounded, strongest, q_tile, k, v, k_offsets, v_offsets, stride_k[2], stride_v[2],
        rows, columns, 0, full, seq_k, shift, exponent_scale,
        dtype, ZEROSUM, CAUSAL, False, HEAD_DIM, BLOCK_N, BLOCK_D,
    )  # fmt: skip
    acc, top, total, total_rounded, strongest = _visit_keys(
        acc, top, total, total_rounded, strongest, q_tile, k, v, k_offsets, v_offsets, stride_k[2], stride_v[2],
        rows, columns, full, end, seq_k, shift, exponent_scale,
        dtype, ZEROSUM, CAUSAL, True, HEAD_DIM, BLOCK_N, BLOCK_D,
    )  # fmt: skip

    seen = total != 0.0
    divisor = tl.where(seen, row_sums(total_rounded) if ZEROSUM else total, 1.0)
    acc = acc / divisor[:, None]
    o = head_base(o, stride_o, batch, head, start_q + first_row)
    o_offsets = tile_offsets(tile_rows, stride_o[2], columns, stride_o[3], WIDE)
    store_tile(o, o_offsets, acc, rows, seq_q, columns, HEAD_DIM)
    statistics = tl.cast(batch, tl.int64) * stride_lse[0] + tl.cast(head, tl.int64) * stride_lse[1] + start_q
    inside = rows < seq_q
    # Rows that see no key keep 0: exp2(−inf − 0) is their probability, 0.
    tl.store(
        lse + statistics + rows, tl.where(seen, top * scale + tl.log(tl.where(seen, total, 1.0)), 0.0), mask=inside
    )
    if ZEROSUM:
        residual = head_base(residual, stride_o, batch, head, start_q + first_row)
        store_tile(residual, o_offsets, acc - rounded(acc, dtype).to(tl.float32), rows, seq_q, columns, HEAD_DIM)
        tl.store(strongest_key + statistics + rows, strongest, mask=inside)
