"""The zero-sum backward on Hopper: FlashAttention-4's kernel, which also leaves the row sums of the rounded dS.

dQ is corrected after the kernel, by r·anchor per row, so the loop over tiles only has to sum the rounded dS. The
product dQ = dS·K does that on the way: behind K in shared memory stands a chunk of ones, and the product is eight
columns wider. Reading dS from shared memory once more costs two to fifteen times as much (MEASURED.md), since that is
what the kernel is short of.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import cutlass.cute as cute
from cutlass import Int32, const_expr
from cutlass.cute.nvgpu import warpgroup
from flash_attn.cute import utils
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from quack import sm90_utils

from gproj.hopper.wide import EXTRA, ROWS, chunk_of, descriptors, operand_layout, product, storage_with


class RowSumBackwardSm90(FlashAttentionBackwardSm90):
    """FlashAttention-4's backward with r, the row sums of the rounded dS, added to `mdQ_semaphore`.

    That argument, which the base ignores unless deterministic, is (batch, heads, seq_q rounded up to whole tiles),
    float32, zero before. dQ of a tile is formed by two warp groups, side by side or one above the other, or by one.
    """

    ordered = False
    """Whether additions are made in a fixed order."""
    beside = 0
    """Columns of r beside those of dQ of a warp group; without them r has a tensor of its own."""

    def _get_shared_storage_cls(self) -> Any:
        """The base's layout of shared memory with a chunk of ones behind K."""
        return storage_with(
            super()._get_shared_storage_cls(), "sK", self.dtype, self.tile_n * self._chunk, self.buffer_align_bytes
        )

    def dQaccum_store(self, *args: Any) -> None:
        """As the base's; keeps where the row sums go."""
        *common, self._row_sums = args
        super().dQaccum_store(*common, None)

    def mma(self, *args: Any, is_dQ_wg: bool = True) -> None:
        """As the base's, with dQ's product widened."""
        self._thread = args[20]
        keys_and_ones = args[10].iterator
        self._fill_with_ones(keys_and_ones + self.tile_n * self.tile_hdim)
        group = self._thread // self.num_threads_per_warp_group
        self._place_row_sums(args[29])
        # Groups side by side share the rows of a tile: the second one's columns end where the ones begin.
        start = keys_and_ones + group * (self.tile_n * self.columns) if self._side_by_side else keys_and_ones
        self._wide_keys = self._wide_operand(start)
        super().mma(*args, is_dQ_wg=is_dQ_wg)

    def _place_row_sums(self, scheduler_of: Callable[[], Any]) -> None:
        """Where this thread adds r of the tile's first block."""
        # One tile of keys to a block of threads: the base's loop over tiles makes one turn.
        _, head_idx, batch_idx, _ = scheduler_of().initial_work_tile_info().tile_idx
        place = cute.crd2idx((batch_idx, head_idx, 0), self._row_sums.layout) + self._row_in_tile()
        # Through a shuffle, or the compiler would rather compute it again for every block, where all wait for it.
        self._first = utils.shuffle_sync(Int32(place), cute.arch.lane_idx())

    def mma_one_m_block(
        self,
        m_block: Int32,
        *args: Any,
        mma_dsk_fn: partial[cute.Tensor],
        **kwargs: Any,
    ) -> Any:
        """As the base's; dQ's product is the wider one, and r is stored once it is there."""
        wide: list[cute.Tensor] = []

        def product_with_keys(A_idx: Int32, wg_wait: int) -> cute.Tensor:
            """dQ in a thread's registers, then r in four, twice each of its two rows."""
            columns = self.columns + EXTRA
            mma, shape = cute.make_tiled_mma(self._product(columns)), (ROWS, columns)
            ds = mma_dsk_fn.args[2]
            wide.append(sm90_utils.gemm_zero_init(mma, shape, ds, self._wide_keys, A_idx=A_idx, wg_wait=wg_wait))
            return wide[0]

        after = super().mma_one_m_block(m_block, *args, mma_dsk_fn=product_with_keys, **kwargs)
        # Not before: the base's fences of shared memory would wait for these additions.
        for sums in wide:  # None of a group that forms no dQ.
            self._add_row_sums(m_block, sums)
        return after

    @property
    def _side_by_side(self) -> bool:
        return self.AtomLayoutMdQ == 1

    @property
    def columns(self) -> int:
        """Columns of dQ of a warp group."""
        return int(self.tile_hdim // (self.num_wg_dQ // self.AtomLayoutMdQ))

    @property
    def _chunk(self) -> int:
        return chunk_of(self.columns)

    def _wide_operand(self, start: cute.Pointer) -> cute.Tensor:
        """A group's columns and a chunk as an operand: the descriptors of a product that wide serve one less wide."""
        whole = self.columns + self._chunk
        layout = operand_layout(self.dtype, self.tile_n, whole, self._chunk)
        return descriptors(self.dtype, start, layout, whole, warpgroup.OperandSource.SMEM)

    def _product(self, columns: int) -> warpgroup.MmaF16BF16Op:
        return product(self.dtype, columns, warpgroup.OperandSource.SMEM)

    @cute.jit
    def _fill_with_ones(self, start: cute.Pointer) -> None:
        """All of the chunk, so that the order of its elements does not matter; the base fences before it is used."""
        each = self.tile_n * self._chunk // self.num_mma_threads
        ones = cute.make_rmem_tensor(each, self.dtype)
        ones.fill(1.0)
        chunk = cute.make_tensor(start, cute.make_layout((each, self.num_mma_threads)))
        cute.autovec_copy(ones, chunk[None, self._thread])

    def _row_in_tile(self) -> Int32:
        """Of the row that this thread adds to: two threads of four have one each of the two that all four hold."""
        group, lane = self._thread // self.num_threads_per_warp_group, cute.arch.lane_idx()
        row = self._thread % self.num_threads_per_warp_group // cute.arch.WARP_SIZE * 16 + lane // 4 + 8 * (lane % 2)
        return row if self._side_by_side else row + ROWS * group

    @cute.jit
    def _add_row_sums(self, m_block: Int32, wide: cute.Tensor) -> None:
        flat = cute.make_tensor(wide.iterator, cute.make_layout(cute.size(wide)))
        place = cute.arch.lane_idx() % 4
        mine = place < 2
        if const_expr(self._side_by_side):
            mine = mine and self._thread // self.num_threads_per_warp_group == self.num_wg_dQ - 1
        row_sum = flat[self.columns // 2] if place == 0 else flat[self.columns // 2 + 2]
        if mine:
            utils.atomic_add_fp32(row_sum, self._row_sums.iterator + (self._first + m_block * self.tile_m))
