"""After the backward kernel: FP32 accumulators, in the order of its registers, to gradients; dQ loses what r leaks."""

import triton
import triton.language as tl

from gproj.hopper.register_order import bricks_by_rows, by_columns, first_columns, second_key


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
    seq_k,
    padded,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    ALONG_M: tl.constexpr,
    SWAPPED: tl.constexpr,
    BLOCKS_M: tl.constexpr,
    BRICKS: tl.constexpr,
    STORED_BRICKS: tl.constexpr,
    PIECE: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    SHARE_STEPS: tl.constexpr,
):
    """One piece of a tile of ROWS rows of one head: scale · (accumulator − r · (anchor + beyond)), rounded.

    accumulator is (batch, heads, tiles, elements as `Accumulators` says), row_sums (batch, heads, padded), or None
    where they stand in the accumulator beside dQ; strongest, None where nothing is taken out, is (batch, heads, seq),
    the index of a key and above it, read where there is no beyond, another one and its share; result and beyond are
    (batch, heads, seq, head_dim), keys (batch, heads // GROUP, seq_k, head_dim). The columns of beyond lie as the
    forward kernel stores them.
    """
    pieces: tl.constexpr = BRICKS // PIECE
    brick: tl.constexpr = 512
    block = tl.program_id(0) // (GROUPS * BLOCKS_M * pieces)
    unit = tl.program_id(0) % (GROUPS * BLOCKS_M * pieces)
    group, block_m, piece = unit // (BLOCKS_M * pieces), unit // pieces % BLOCKS_M, unit % pieces
    head = tl.program_id(1).to(tl.int64)
    batch, of_batch = head // HEADS, head % HEADS
    tile = accumulator + (head * (padded // ROWS) + block) * (GROUPS * BLOCKS_M * STORED_BRICKS * brick)
    place = ((group * BLOCKS_M + block_m) * STORED_BRICKS + piece * PIECE) * brick
    x = bricks_by_rows(tl.load(tile + place + tl.arange(0, PIECE * brick)), PIECE)
    m, n = block_m * 64, piece * PIECE * 8
    if ALONG_M:
        m = (block_m * GROUPS + group) * 64
    else:
        n += group * BRICKS * 8
    if SWAPPED:
        x = tl.trans(x)
        rows, columns = block * ROWS + n + tl.arange(0, PIECE * 8), m + tl.arange(0, 64)
    else:
        rows, columns = block * ROWS + m + tl.arange(0, 64), n + tl.arange(0, PIECE * 8)
    inside = rows < seq
    if strongest is not None:
        if row_sums is not None:
            r = tl.load(row_sums + head * padded + rows)
        else:
            # Of groups side by side the last one's columns end where the ones began.
            last = group if ALONG_M else GROUPS - 1
            beside = ((last * BLOCKS_M + block_m) * STORED_BRICKS + BRICKS) * brick
            r = tl.load(tile + beside + first_columns(tl.arange(0, 64)))
        word = tl.load(strongest + head * seq + rows, inside, 0)
        index = word & ((1 << INDEX_BITS) - 1)
        of_head = keys + batch * key_strides[0] + (of_batch // GROUP) * key_strides[1] + columns
        taken = tl.load(of_head + index[:, None].to(tl.int64) * key_strides[2]).to(tl.float32)
        if beyond is None:
            second, share = second_key(word, index, seq_k, INDEX_BITS, SHARE_STEPS)
            other = tl.load(of_head + second[:, None].to(tl.int64) * key_strides[2]).to(tl.float32)
            taken += share[:, None] * (other - taken)
        else:
            more = tl.load(
                beyond
                + batch * beyond_strides[0]
                + of_batch * beyond_strides[1]
                + rows[:, None].to(tl.int64) * beyond_strides[2]
                + columns,
                inside[:, None],
                0.0,
            )
            taken += by_columns(more.to(tl.float32), 64, PIECE * 8)
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
