"""The zero-sum forward on Hopper: FlashAttention-4's kernel, normalised by the sum of the rounded weights.

What multiplies V is P rounded to BF16, so its own row sum is what makes the weights of O sum to one; it takes the place
of the base's sum, in log-sum-exp too. The product P·V forms it on the way: behind V in shared memory stand eight more
columns, and the product is that much wider. The first is one; the others are +1 or −1 by the bits of the key's place in
its block, so their sums tell the place of a key with more than half of the row's weight, whatever the other weights
are. That key, in the block where the row's maximum was found, is the row's anchor; where no key has half of the weight,
any key near them will do: the anchor then lies between the key that the sums name and the one that differs from it in
the bit that they are least clear about. Beside O the kernel leaves what the backward pass needs: these keys and the
residual of O's rounding. Where a block of keys would not fit into shared memory with eight more columns, which take up
a whole chunk, the eight stand apart and are a product of their own.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.utils import LayoutEnum
from flash_attn.cute.cute_dsl_utils import assume_tensor_aligned
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90
from flash_attn.cute.utils import AuxData
from quack import sm90_utils

from gproj.hopper.softmax import Softmaxes, ZeroSumSoftmax, softmax_replaced
from gproj.hopper.wide import (
    EXTRA,
    ROWS,
    WideProduct,
    accumulator,
    accumulator_part,
    chunk_of,
    multiply,
    storage_with,
)

FILLED_BARRIER = 15
"""Named barrier after the constants have been written; the base kernel uses 1 to 6."""
PIECE = 8
"""Elements that a thread stores at once: 16 bytes."""
TILES = {64: (192, 128), 96: (192, 96), 128: (128, 128), 192: (128, 112), 256: (128, 80)}
"""Queries of a tile and keys of a block: at most 128, what seven bits tell apart. The base's, but for 96 columns, whose
three warp groups have no registers for the base's 128 keys."""
WIDEST_BESIDE = 128
"""Columns of V up to which the constants stand behind them."""


class ZeroSumForwardSm90(FlashAttentionForwardSm90):
    """FlashAttention-4's forward with a zero-sum softmax and two more results.

    `aux_data.tensors` holds them: the residual of O, (batch, seq_q, heads, head_dim), the columns of each row in the
    order of `_store_row`, and the keys of the anchor of every row, (batch, heads, seq_q), int32; behind them K once
    more, (batch, seq_k, kv_heads, head_dim), to read single keys from.
    """

    @staticmethod
    def tiles(head_dim: int) -> tuple[int, int]:
        """Queries of a tile and keys of a block."""
        return TILES[head_dim]

    @property
    def columns(self) -> int:
        """Columns that are loaded into a stage of V; the constants stand behind them."""
        return int(self.tile_hdimv)

    @property
    def apart(self) -> bool:
        """Whether the constants are a product of their own, the same for every stage."""
        return bool(self.tile_hdimv > WIDEST_BESIDE)

    @property
    def chunk(self) -> int:
        """Columns that are contiguous where the constants stand."""
        return EXTRA if self.apart else chunk_of(self.tile_hdimv)

    def widths(self) -> tuple[int, ...]:
        """Columns of the products of P, one after the other; each begins where a chunk does."""
        return (self.columns, EXTRA) if self.apart else (self.columns + EXTRA,)

    def _get_shared_storage_cls(self) -> Any:
        """The base's layout of shared memory, each stage of V followed by what else P multiplies, or all of them."""
        if self.apart:
            of_base = super()._get_shared_storage_cls()
            return storage_with(of_base, "sV", self.dtype, self.tile_n * EXTRA, self.buffer_align_bytes)
        stage = sm90_utils.make_smem_layout(self.dtype, LayoutEnum.ROW_MAJOR, (self.tile_n, self.tile_hdimv), None)
        self.sV_layout = cute.make_composed_layout(stage.inner, 0, cute.append(stage.outer, self._stages()))
        behind = self.tile_n * (self.columns + self.chunk - self.tile_hdimv)
        return storage_with(super()._get_shared_storage_cls(), "sV", self.dtype, behind, self.buffer_align_bytes)

    def mma(self, *args: Any) -> None:
        """As the base's, with P·V widened, the softmax replaced and the extra results kept for the epilogue."""
        *common, aux_data, _ = args
        self._beside_o, self._key_index, self._keys = [assume_tensor_aligned(x) for x in aux_data.tensors]
        values, self._thread = common[6].iterator, common[15]
        if self.apart:
            # Pointers to V know how V is swizzled; these columns are not.
            constants = cute.recast_ptr(values + self.num_stages * self._stage_stride)
            self._fill_columns(constants)
        else:
            for stage in range(self.num_stages):
                self._fill_columns(values + (stage * self._stage_stride + self.tile_n * self.columns))
        cute.arch.fence_view_async_shared()
        cute.arch.barrier(barrier_id=FILLED_BARRIER, number_of_threads=self.num_mma_threads)
        self._wide = accumulator(self.columns + EXTRA)
        self._products, first = [], 0
        for width in self.widths():
            part = accumulator_part(self._wide, first, width)
            operand = (values + self.tile_n * first, self._stages(), chunk_of(self.tile_hdimv))
            if self.apart and first == self.columns:
                operand = (constants, cute.make_layout(self.num_stages, stride=0), EXTRA)
            start, stages, chunk = operand
            self._products.append(WideProduct.create(self.dtype, start, self.tile_n, stages, part, width, chunk))
            first += width
        self._softmaxes = Softmaxes(self._wide, self.tile_n)
        with softmax_replaced(self._softmaxes):
            super().mma(*common, AuxData(), None)

    def first_half_block_overlap(self, *, n_block: Int32, softmax: ZeroSumSoftmax, **kwargs: Any) -> Any:
        """As the base's; the softmax is told the block."""
        softmax.block[0] = n_block
        if self.rescale_O_before_gemm:
            self._wide.fill(0.0)
        return super().first_half_block_overlap(n_block=n_block, softmax=softmax, **kwargs)

    def mma_one_n_block_intrawg_overlap(
        self,
        smem_pipe_read: Any,
        n_block: Int32,
        mma_pv_fn: partial[None],
        softmax: ZeroSumSoftmax,
        **kwargs: Any,
    ) -> Any:
        """As the base's with the wider product; the softmax is told the block."""
        softmax.block[0] = n_block
        return super().mma_one_n_block_intrawg_overlap(
            smem_pipe_read, n_block, mma_pv_fn=self._widened(mma_pv_fn), softmax=softmax, **kwargs
        )

    def last_half_block_overlap(self, *, mma_pv_fn: partial[None], **kwargs: Any) -> Any:
        """As the base's with the wider product."""
        return super().last_half_block_overlap(mma_pv_fn=self._widened(mma_pv_fn), **kwargs)

    def _widened(self, mma_pv_fn: partial[None]) -> Callable[..., None]:
        """The base's product of P, its third argument, into the wide accumulator."""
        return partial(multiply, self._products, mma_pv_fn.args[2], **mma_pv_fn.keywords)

    def _stages(self) -> cute.Layout:
        return cute.make_layout(self.num_stages, stride=self._stage_stride)

    @property
    def _stage_stride(self) -> int:
        return self.tile_n * (self.columns if self.apart else self.columns + self.chunk)

    @cute.jit
    def _fill_columns(self, start: cute.Pointer) -> None:
        """One row per thread: eight columns over a chunk, so that the order of the pieces of a row does not matter."""
        key = self._thread
        if key < self.tile_n:
            columns = cute.make_rmem_tensor(self.chunk, Float32)
            for piece in cutlass.range_constexpr(self.chunk // EXTRA):
                columns[EXTRA * piece] = Float32(1.0)
                for bit in cutlass.range_constexpr(EXTRA - 1):
                    columns[EXTRA * piece + bit + 1] = Float32(1.0) if (key >> bit) & 1 == 1 else Float32(-1.0)
            row = cute.make_rmem_tensor(self.chunk, self.dtype)
            row.store(columns.load().to(self.dtype))
            chunk = cute.make_tensor(start, cute.make_layout((self.chunk, self.tile_n)))
            cute.autovec_copy(row, chunk[None, key])

    def epilogue(self, acc_O: cute.Tensor, lse: cute.Tensor, *base: Any) -> None:
        """Store O and log-sum-exp as the base does, then the residual of O and the index of the anchor."""
        seqlen, m_block, head_idx, batch_idx = base[3], *base[8:]
        o = accumulator_part(self._wide, 0, self.tile_hdimv)
        FlashAttentionForwardSm90.epilogue(self, o, lse, *base)  # A traced method loses what super() needs.
        self._store_extra(seqlen.seqlen_q, seqlen.seqlen_k, m_block, head_idx, batch_idx)

    @cute.jit
    def _store_extra(self, seq_q: Int32, seq_k: Int32, m_block: Int32, head: Int32, batch: Int32) -> None:
        first, quarter = m_block * self.tile_m + self._first_row(), self._thread % 4
        anchors, index, rows = self._softmaxes.made.key_block, self._key_index, self._beside_o
        second_keys = self._softmaxes.made.second_key
        for upper in cutlass.range_constexpr(2):
            row = first + EXTRA * upper
            if row < seq_q:
                # Bits of several keys together may name one behind the last.
                anchor = cutlass.min(anchors[upper], seq_k - 1)
                if quarter == 0:
                    index[batch, head, row] = anchor | second_keys[upper]
                self._store_row(rows[batch, row, head, None], upper, anchor, head, batch)

    def _first_row(self) -> Int32:
        """Within the tile, the first of this thread's two rows; the other is eight further."""
        warp, lane = self._thread // cute.arch.WARP_SIZE, self._thread % cute.arch.WARP_SIZE
        return warp // 4 * ROWS + warp % 4 * 16 + lane // 4

    @cute.jit
    def _store_row(
        self, row: cute.Tensor, upper: cutlass.Constexpr[int], anchor: Int32, head: Int32, batch: Int32
    ) -> None:
        """A thread's quarter of one row, as it lies in its registers.

        In a row's storage: 32 columns, quarter of four threads, eight columns of these 32, two neighbours.
        """
        quarter = self._thread % 4
        values = self._row_values(upper, anchor, head, batch)
        for part in cutlass.range_constexpr(cute.size(values) // PIECE):
            piece = cute.make_rmem_tensor(PIECE, self.dtype)
            piece.store(cute.local_tile(values, (PIECE,), (part,)).load().to(self.dtype))
            cute.autovec_copy(piece, cute.local_tile(row, (PIECE,), (4 * part + quarter,)))

    def _row_values(self, upper: int, anchor: Int32, head: Int32, batch: Int32) -> cute.Tensor:
        """What O's rounding took from this thread's columns of one of its rows."""
        o = self._columns_of_row(0, self.tile_hdimv, upper)
        values = cute.make_fragment_like(o, Float32)
        values.store(o.load() - o.load().to(self.dtype).to(Float32))
        return values

    def _columns_of_row(self, first: int, columns: int, upper: int) -> cute.Tensor:
        """This thread's columns, two of each eight, of one of its two rows."""
        start = self._wide.iterator + first * ROWS // 128
        registers = cute.make_tensor(start, cute.make_layout((2, 2, columns // EXTRA)))
        values = cute.make_rmem_tensor(cute.make_layout(columns // 4), Float32)
        for pair in range(columns // EXTRA):
            for place in range(2):
                values[2 * pair + place] = registers[place, upper, pair]
        return values
