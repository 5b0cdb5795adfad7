"""The online softmax of the Hopper forward kernels: no sum of its own, but where the maximum was."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr
from flash_attn.cute import flash_fwd_sm90, utils
from flash_attn.cute.softmax import Softmax
from quack import layout_utils

from gproj.hopper.support import INDEX_BITS, SHARE_STEPS
from gproj.hopper.wide import EXTRA

LN2 = 0.6931471805599453


@dataclass
class ZeroSumSoftmax(Softmax):
    """Online softmax whose sum stands in the accumulator of O, which is wider than O.

    Attributes:
        row_max: per row, the largest score.
        row_sum: per row, the log-sum-exp in the end.
        wide: accumulator of O and whatever stands behind it, in the end the eight sums.
        key_block: per row, block of keys that holds the largest score; in the end the index of the anchor's first key.
        second_key: per row, in the end, `second_key_word`, which stands above it.
        block: one element, the block of keys in work.
        keys_of_block: keys in a block.
    """

    wide: Any = None
    key_block: Any = None
    second_key: Any = None
    block: Any = None
    keys_of_block: int = 0

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
        """Rescale O and what stands behind it alike, wherever the base means O alone."""
        Softmax.rescale_O(self, self.wide, row_scale)

    @cute.jit
    def finalize(self, final_scale: Float32 = 1.0, sink_val: Float32 | cute.Tensor | None = None) -> cute.Tensor:
        """1 / sum of weights per row; leaves log-sum-exp in `row_sum`, the anchor in `key_block` and `second_key`."""
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
            # The bit that the weights are least agreed on: the sum of the smallest magnitude.
            of_odd = odd if odd > 0.0 else -odd
            of_even = Float32.inf if quarter == 0 else (even if even > 0.0 else -even)
            least = of_odd if of_odd < of_even else of_even
            doubtful = 2 * quarter if of_odd < of_even else 2 * quarter - 1
            for step in cutlass.range_constexpr(2):
                other = cute.arch.shuffle_sync_bfly(least, offset=1 + step)
                of_other = cute.arch.shuffle_sync_bfly(doubtful, offset=1 + step)
                doubtful = of_other if other < least or (other == least and of_other < doubtful) else doubtful
                least = other if other < least else least
            self.key_block[r] = self.key_block[r] * self.keys_of_block + bits
            empty = total == 0.0 or total != total
            share = Float32(0.0) if empty else least * cute.arch.rcp_approx(total)
            self.second_key[r] = second_key_word(share, (bits >> doubtful) & 1, doubtful)
            row_scale[r] = cute.arch.rcp_approx(Float32(1.0) if empty else total) * final_scale
            lse = (self.row_max[r] * self.scale_log2 + cute.math.log2(total, fastmath=True)) * LN2
            self.row_sum[r] = -Float32.inf if empty else lse
        return row_scale


def second_key_word(share: Float32, bit: Int32, place: Int32) -> Int32:
    """The upper bits of a row's anchor, as `register_order.second_key` reads them."""
    steps = Int32(share * SHARE_STEPS + 0.5)
    steps = cutlass.min(cutlass.max(steps, 0), SHARE_STEPS)
    return (place << 29) | (bit << 28) | (steps << INDEX_BITS)


class Softmaxes:
    """Stands for the class `Softmax` while a kernel is traced, and keeps the instance that it makes."""

    def __init__(self, wide: cute.Tensor, keys_of_block: int) -> None:
        self.wide, self.keys_of_block = wide, keys_of_block
        self.made: Any = None

    def create(
        self, scale_log2: Float32, num_rows: int, arch: int = 90, softmax_scale: Float32 | None = None
    ) -> ZeroSumSoftmax:
        """As `Softmax.create`."""
        row_max, row_sum = (cute.make_rmem_tensor(num_rows, Float32) for _ in range(2))
        key_block, second_key, block = (cute.make_rmem_tensor(size, Int32) for size in (num_rows, num_rows, 1))
        of_base = (scale_log2, num_rows, row_max, row_sum, arch, softmax_scale)
        self.made = ZeroSumSoftmax(*of_base, self.wide, key_block, second_key, block, self.keys_of_block)
        return self.made


@contextmanager
def softmax_replaced(softmaxes: Softmaxes) -> Iterator[None]:
    """While FlashAttention-4's forward is traced, its softmax is ours."""
    original = flash_fwd_sm90.Softmax
    flash_fwd_sm90.Softmax = softmaxes
    try:
        yield
    finally:
        flash_fwd_sm90.Softmax = original
