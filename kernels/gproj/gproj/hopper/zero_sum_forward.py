"""The zero-sum forward on Hopper: FlashAttention-4's kernel, normalised by the sum of the rounded weights.

What multiplies V is P rounded to BF16, so its own row sum is what makes the weights of O sum to one; it takes the place
of the base's sum, in log-sum-exp too. The product P·V forms it on the way: behind V in shared memory stand eight more
columns, and the product is that much wider. The first is one; the others are +1 or −1 by the bits of the key's place in
its block, so their sums tell the place of a key with more than half of the row's weight, whatever the other weights
are. That key, in the block where the row's maximum was found, is the row's anchor; where no key has half of the weight,
any key near them will do. Beside O the kernel leaves what the backward pass needs: this index and the residual of O's
rounding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import LayoutEnum
from flash_attn.cute import flash_fwd_sm90, utils
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90
from flash_attn.cute.softmax import Softmax
from flash_attn.cute.utils import AuxData
from quack import layout_utils, sm90_utils

from gproj.hopper.wide import CHUNK, EXTRA, operand_layout, product, storage_with

TURN_BARRIER = 15
"""Named barrier between the stores of O and of its residual; the base kernel uses 1 to 6."""
TILE_N = 128
"""Keys per block; the seven further columns tell a place among so many."""
LN2 = 0.6931471805599453


@dataclass
class ZeroSumSoftmax(Softmax):
    """Online softmax without a sum of its own: that stands in O, whose accumulator is wider than O.

    Attributes:
        row_max: per row, the largest score.
        row_sum: per row, the log-sum-exp in the end.
        wide: accumulator of O and, after its columns, of the eight sums.
        key_block: per row, block of keys that holds the largest score.
        block: one element, the block of keys in work.
    """

    wide: Any = None
    key_block: Any = None
    block: Any = None

    @cute.jit
    def online_softmax(
        self, acc_S: cute.Tensor, is_first: cutlass.Constexpr[bool] = False, check_inf: cutlass.Constexpr[bool] = True
    ) -> cute.Tensor:
        """Replace scores by their exponentials; returns what rescales O, one value per row."""
        scores = layout_utils.reshape_acc_to_mn(acc_S)
        row_scale = cute.make_fragment_like(self.row_max, Float32)
        for r in cutlass.range_constexpr(cute.size(self.row_max)):
            before = self.row_max[r]
            top = utils.fmax_reduce(
                scores[r, None].load(), init_val=None if const_expr(is_first) else before, arch=self.arch
            )
            top = cute.arch.warp_reduction_max(top, threads_in_group=4)
            self.row_max[r] = top
            if const_expr(is_first):
                self.key_block[r] = self.block[0]
            else:
                self.key_block[r] = self.block[0] if top != before else self.key_block[r]
            if const_expr(check_inf):
                top = Float32(0.0) if top == -Float32.inf else top
            scaled = top * self.scale_log2
            scores[r, None].store(cute.math.exp2(scores[r, None].load() * self.scale_log2 - scaled, fastmath=True))
            row_scale[r] = (
                Float32(1.0)
                if const_expr(is_first)
                else cute.math.exp2((before - top) * self.scale_log2, fastmath=True)
            )
        return row_scale

    def rescale_O(self, acc_O: cute.Tensor, row_scale: cute.Tensor) -> None:
        """Rescale O and the sums of its weights alike, wherever the base means O alone."""
        Softmax.rescale_O(self, self.wide, row_scale)

    @cute.jit
    def finalize(self, final_scale: Float32 = 1.0, sink_val: Float32 | cute.Tensor | None = None) -> cute.Tensor:
        """1 / sum of weights per row; leaves the log-sum-exp in `row_sum` and the anchor's index in `key_block`."""
        flat = cute.make_tensor(self.wide.iterator, cute.make_layout(cute.size(self.wide)))
        sums = cute.size(self.wide) - EXTRA // 2  # A thread has two of the eight columns, of two rows.
        quarter = cute.arch.lane_idx() % 4
        row_scale = cute.make_fragment_like(self.row_max, Float32)
        for r in cutlass.range_constexpr(cute.size(self.row_max)):
            even, odd = flat[sums + 2 * r], flat[sums + 2 * r + 1]
            total = utils.shuffle_sync(even, 0, width=4)
            bits = (Int32(1) if odd > 0.0 else Int32(0)) << (2 * quarter)
            if quarter > 0:
                bits = bits | ((Int32(1) if even > 0.0 else Int32(0)) << (2 * quarter - 1))
            bits = bits | cute.arch.shuffle_sync_bfly(bits, offset=1)
            bits = bits | cute.arch.shuffle_sync_bfly(bits, offset=2)
            self.key_block[r] = self.key_block[r] * TILE_N + bits
            empty = total == 0.0 or total != total
            row_scale[r] = cute.arch.rcp_approx(Float32(1.0) if empty else total) * final_scale
            lse = (self.row_max[r] * self.scale_log2 + cute.math.log2(total, fastmath=True)) * LN2
            self.row_sum[r] = -Float32.inf if empty else lse
        return row_scale


class _Softmaxes:
    """Stands for the class `Softmax` while a kernel is traced, and keeps the instance that it makes."""

    def __init__(self, wide: cute.Tensor) -> None:
        self.wide = wide
        self.made: Any = None

    def create(
        self, scale_log2: Float32, num_rows: int, arch: int = 90, softmax_scale: Float32 | None = None
    ) -> ZeroSumSoftmax:
        """As `Softmax.create`."""
        row_max, row_sum = (cute.make_rmem_tensor(num_rows, Float32) for _ in range(2))
        key_block, block = (cute.make_rmem_tensor(size, Int32) for size in (num_rows, 1))
        self.made = ZeroSumSoftmax(
            scale_log2, num_rows, row_max, row_sum, arch, softmax_scale, self.wide, key_block, block
        )
        return self.made


@contextmanager
def _softmax_replaced(softmaxes: _Softmaxes) -> Iterator[None]:
    original = flash_fwd_sm90.Softmax
    flash_fwd_sm90.Softmax = softmaxes
    try:
        yield
    finally:
        flash_fwd_sm90.Softmax = original


class ZeroSumForwardSm90(FlashAttentionForwardSm90):
    """FlashAttention-4's forward with a zero-sum softmax and two more results.

    `aux_data.tensors` holds them: the residual of O, shaped like O, (batch, seq_q, heads, head_dim), and the index of
    the anchor of every row, (batch, heads, seq_q), int32.
    """

    def _get_shared_storage_cls(self) -> Any:
        """The base's layout of shared memory, each stage of V followed by a chunk for the eight columns."""
        stage = sm90_utils.make_smem_layout(self.dtype, LayoutEnum.ROW_MAJOR, (self.tile_n, self.tile_hdimv), None)
        stages = cute.make_layout(self.num_stages, stride=self._stage_stride)
        self.sV_layout = cute.make_composed_layout(stage.inner, 0, cute.append(stage.outer, stages))
        return storage_with(super()._get_shared_storage_cls(), "sV", self.dtype, self.tile_n, self.buffer_align_bytes)

    def mma(self, *args: Any) -> None:
        """As the base's, with P·V widened, the softmax replaced and the extra results kept for the epilogue."""
        *common, aux_data, _ = args
        self._residual, self._key_index = aux_data.tensors
        values, self._thread = common[6].iterator, common[15]
        for stage in range(self.num_stages):
            self._fill_columns(values + (stage * self._stage_stride + self.tile_n * self.tile_hdimv))
        cute.arch.fence_view_async_shared()
        cute.arch.barrier(barrier_id=TURN_BARRIER, number_of_threads=self.num_mma_threads)
        chunks = self.tile_hdimv + CHUNK
        outer = operand_layout(self.dtype, self.tile_n, chunks)
        stages = cute.make_layout(self.num_stages, stride=self._stage_stride)
        operand = layout_utils.transpose_view(cute.make_tensor(values, cute.append(outer, stages)))
        thread = cute.make_tiled_mma(self._product(chunks)).get_slice(0)
        self._wide_values = thread.make_fragment_B(thread.partition_B(operand))
        self._wide_mma = cute.make_tiled_mma(self._product(self.tile_hdimv + EXTRA))
        shape = self._wide_mma.get_slice(0).partition_shape_C((64, self.tile_hdimv + EXTRA))
        self._softmaxes = _Softmaxes(cute.make_rmem_tensor(shape, Float32))
        with _softmax_replaced(self._softmaxes):
            super().mma(*common, AuxData(), None)

    def first_half_block_overlap(self, *, n_block: Int32, softmax: ZeroSumSoftmax, **kwargs: Any) -> Any:
        """As the base's; the softmax is told the block."""
        softmax.block[0] = n_block
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
        return partial(
            sm90_utils.gemm_w_idx,
            self._wide_mma,
            self._softmaxes.wide,
            mma_pv_fn.args[2],
            self._wide_values,
            **mma_pv_fn.keywords,
        )

    def _product(self, columns: int) -> warpgroup.MmaF16BF16Op:
        return product(self.dtype, columns, warpgroup.OperandSource.RMEM)

    @property
    def _stage_stride(self) -> int:
        return self.tile_n * (self.tile_hdimv + CHUNK)

    @cute.jit
    def _fill_columns(self, start: cute.Pointer) -> None:
        """One row per thread: eight columns, eight times, so that the order of the pieces of a row does not matter."""
        key = self._thread
        if key < self.tile_n:
            columns = cute.make_rmem_tensor(CHUNK, Float32)
            for piece in cutlass.range_constexpr(CHUNK // EXTRA):
                columns[EXTRA * piece] = Float32(1.0)
                for bit in cutlass.range_constexpr(EXTRA - 1):
                    columns[EXTRA * piece + bit + 1] = Float32(1.0) if (key >> bit) & 1 == 1 else Float32(-1.0)
            row = cute.make_rmem_tensor(CHUNK, self.dtype)
            row.store(columns.load().to(self.dtype))
            chunk = cute.make_tensor(start, cute.make_layout((CHUNK, self.tile_n)))
            cute.autovec_copy(row, chunk[None, key])

    @cute.jit
    def epilogue(
        self,
        acc_O: cute.Tensor,
        lse: cute.Tensor,
        mO: cute.Tensor,
        mLSE: cute.Tensor,
        sO: cute.Tensor,
        seqlen: Any,
        gmem_tiled_copy_O: cute.TiledCopy,
        tma_atom_O: cute.CopyAtom,
        tiled_mma: cute.TiledMma,
        tidx: Int32,
        m_block: Int32,
        head_idx: Int32,
        batch_idx: Int32,
    ) -> None:
        """Store O and log-sum-exp as the base does, then the residual of O and the index of the anchor."""
        where = (sO, seqlen, gmem_tiled_copy_O, tma_atom_O, tiled_mma, tidx, m_block, head_idx, batch_idx)
        o = cute.make_tensor(self._softmaxes.wide.iterator, acc_O.layout)
        residual = cute.make_fragment_like(acc_O, Float32)
        residual.store(o.load() - o.load().to(self.dtype).to(Float32))
        base = FlashAttentionForwardSm90.epilogue  # A traced method loses what super() without arguments needs.
        base(self, o, lse, mO, mLSE, *where)
        self._store_anchors(tiled_mma.get_slice(tidx), seqlen, m_block, head_idx, batch_idx)
        # The first store must have left shared memory, which its warp awaits, before anyone enters the next.
        cute.arch.barrier(barrier_id=TURN_BARRIER, number_of_threads=self.num_epilogue_threads)
        self.use_tma_O = False  # There is no descriptor of the residual.
        base(self, residual, lse, layout_utils.select(self._residual, [1, 3, 2, 0]), None, *where)
        self.use_tma_O = True

    @cute.jit
    def _store_anchors(
        self, thr_mma: cute.ThrMma, seqlen: Any, m_block: Int32, head_idx: Int32, batch_idx: Int32
    ) -> None:
        anchors, index = self._softmaxes.made.key_block, self._key_index
        identity = cute.make_identity_tensor((self.tile_m, self.tile_hdimv))
        places = layout_utils.reshape_acc_to_mn(thr_mma.partition_C(identity))
        first = m_block * self.tile_m
        if places[0, 0][1] == 0:
            for m in cutlass.range_constexpr(cute.size(anchors)):
                row = first + places[m, 0][0]
                if row < seqlen.seqlen_q:
                    # Bits of several keys together may name one behind the last.
                    index[batch_idx, head_idx, row] = cutlass.min(anchors[m], seqlen.seqlen_k - 1)
