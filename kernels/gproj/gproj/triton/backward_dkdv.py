"""dK and dV by blocks of keys; every query head that shares the key head is visited in turn, so nothing is atomic."""

import triton
import triton.language as tl

from gproj.triton.arithmetic import LOG2E, bound, head_base, load_tile, rounded, sequence, store_tile, tile_offsets


@triton.jit
def _visit_queries(
    dk,
    dv,
    k,
    v,
    q,
    do,
    lse,
    d,
    q_offsets,
    do_offsets,
    stride_q,
    stride_do,
    keys,
    columns,
    begin,
    end,
    seq_q,
    shift,
    exponent_scale,
    dtype: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    for first in tl.range(bound(begin), bound(end), BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        q_base = q + tl.cast(first, tl.int64) * stride_q
        do_base = do + tl.cast(first, tl.int64) * stride_do
        q_tile = load_tile(q_base, q_offsets, rows, seq_q, columns, HEAD_DIM, BLOCK_D, MASKED)
        if MASKED:
            lse2 = tl.load(lse + rows, mask=rows < seq_q, other=0.0) * LOG2E
            d_rows = tl.load(d + rows, mask=rows < seq_q, other=0.0)
        else:
            lse2 = tl.load(lse + rows) * LOG2E
            d_rows = tl.load(d + rows)
        scores = tl.dot(k, tl.trans(q_tile))
        p = tl.exp2(scores * exponent_scale - lse2[None, :])
        if MASKED and CAUSAL:  # rows beyond the last are loaded as zeros and add nothing
            p = tl.where(keys[:, None] <= rows[None, :] + shift, p, 0.0)
        do_tile = load_tile(do_base, do_offsets, rows, seq_q, columns, HEAD_DIM, BLOCK_D, MASKED)
        dv = tl.dot(rounded(p, dtype), do_tile, dv)
        dp = tl.dot(v, tl.trans(do_tile))
        ds = rounded(p * (dp - d_rows[None, :]), dtype)
        dk = tl.dot(ds, q_tile, dk)
    return dk, dv


@triton.jit
def backward_dkdv_kernel(
    q,
    k,
    v,
    do,
    lse,
    d,
    dk,
    dv,
    cu_seqlens_q,
    cu_seqlens_k,
    stride_q,
    stride_k,
    stride_v,
    stride_do,
    stride_dk,
    stride_dv,
    stride_lse,
    kv_heads,
    group,
    seq_q,
    seq_k,
    key_blocks,
    scale,
    exponent_scale,
    CAUSAL: tl.constexpr,
    VARLEN: tl.constexpr,
    WIDE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program per (batch, key head, block of BLOCK_N keys)."""
    dtype: tl.constexpr = q.dtype.element_ty
    program = tl.program_id(0)
    block = program % key_blocks
    batch = program // key_blocks // kv_heads
    kv_head = program // key_blocks % kv_heads
    start_q, seq_q = sequence(batch, cu_seqlens_q, seq_q, VARLEN)
    start_k, seq_k = sequence(batch, cu_seqlens_k, seq_k, VARLEN)
    first_key = block * BLOCK_N
    if first_key >= seq_k:
        return
    keys = first_key + tl.arange(0, BLOCK_N)
    columns = tl.arange(0, BLOCK_D)
    tile_keys = tl.arange(0, BLOCK_N)
    tile_rows = tl.arange(0, BLOCK_M)
    shift = seq_k - seq_q
    k = head_base(k, stride_k, batch, kv_head, start_k + first_key)
    v = head_base(v, stride_v, batch, kv_head, start_k + first_key)
    k_offsets = tile_offsets(tile_keys, stride_k[2], columns, stride_k[3], WIDE)
    v_offsets = tile_offsets(tile_keys, stride_v[2], columns, stride_v[3], WIDE)
    q_offsets = tile_offsets(tile_rows, stride_q[2], columns, stride_q[3], WIDE)
    do_offsets = tile_offsets(tile_rows, stride_do[2], columns, stride_do[3], WIDE)
    k_tile = load_tile(k, k_offsets, keys, seq_k, columns, HEAD_DIM, BLOCK_D, True)
    v_tile = load_tile(v, v_offsets, keys, seq_k, columns, HEAD_DIM, BLOCK_D, True)
    acc_k = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    acc_v = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)

    whole = seq_q // BLOCK_M * BLOCK_M
    if CAUSAL:
        # Queries before `begin` see none of these keys, those from `clear` on see all of them.
        begin = tl.maximum(first_key - shift, 0) // BLOCK_M * BLOCK_M
        clear = (tl.maximum(first_key + BLOCK_N - 1 - shift, 0) + BLOCK_M - 1) // BLOCK_M * BLOCK_M
    else:
        begin = tl.cast(0, tl.int32)
        clear = begin
    tail = tl.maximum(whole, begin)
    clear = tl.minimum(clear, tail)
    for member in tl.range(0, bound(group)):
        head = kv_head * group + member
        q_head = head_base(q, stride_q, batch, head, start_q)
        do_head = head_base(do, stride_do, batch, head, start_q)
        statistics = tl.cast(batch, tl.int64) * stride_lse[0] + tl.cast(head, tl.int64) * stride_lse[1] + start_q
        if CAUSAL:
            acc_k, acc_v = _visit_queries(
                acc_k, acc_v, k_tile, v_tile, q_head, do_head, lse + statistics, d + statistics,
                q_offsets, do_offsets, stride_q[2], stride_do[2], keys, columns, begin, clear, seq_q, shift,
                exponent_scale, dtype, CAUSAL, True, HEAD_DIM, BLOCK_M, BLOCK_D,
            )  # fmt: skip
        acc_k, acc_v = _visit_queries(
            acc_k, acc_v, k_tile, v_tile, q_head, do_head, lse + statistics, d + statistics,
            q_offsets, do_offsets, stride_q[2], stride_do[2], keys, columns, clear, tail, seq_q, shift,
            exponent_scale, dtype, CAUSAL, False, HEAD_DIM, BLOCK_M, BLOCK_D,
        )  # fmt: skip
        acc_k, acc_v = _visit_queries(
            acc_k, acc_v, k_tile, v_tile, q_head, do_head, lse + statistics, d + statistics,
            q_offsets, do_offsets, stride_q[2], stride_do[2], keys, columns, tail, seq_q, seq_q, shift,
            exponent_scale, dtype, CAUSAL, True, HEAD_DIM, BLOCK_M, BLOCK_D,
        )  # fmt: skip

    dk = head_base(dk, stride_dk, batch, kv_head, start_k + first_key)
    dv = head_base(dv, stride_dv, batch, kv_head, start_k + first_key)
    store_tile(dk, tile_offsets(tile_keys, stride_dk[2], columns, stride_dk[3], WIDE), acc_k * scale,
               keys, seq_k, columns, HEAD_DIM)  # fmt: skip
    store_tile(dv, tile_offsets(tile_keys, stride_dv[2], columns, stride_dv[3], WIDE), acc_v,
               keys, seq_k, columns, HEAD_DIM)  # fmt: skip
