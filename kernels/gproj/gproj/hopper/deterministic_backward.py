"""The zero-sum backward on Hopper in a fixed order of additions: r goes to memory together with dQ.

FlashAttention-4 orders the additions to dQ by a semaphore for each tile, held by the warp that sends a tile off; r,
added by the threads that hold it, would escape it. So a tile of dQ is eight columns wider in shared and in global
memory too.
"""

from typing import Any

import cutlass.cute as cute
from cutlass import Float32, Int32
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90

from gproj.hopper.row_sum_backward import RowSumBackwardSm90
from gproj.hopper.wide import EXTRA


class BesideBackwardSm90(RowSumBackwardSm90):
    """FlashAttention-4's backward with r beside dQ in `mdQaccum`, as `Accumulators.beside` says."""

    beside = EXTRA
    tile_hdim: int

    def _setup_attributes(self) -> None:
        """As the base's with wider tiles of dQ."""
        super()._setup_attributes()
        elements = self.tile_m * self._stored_columns // self.num_wg_dQ
        self.sdQaccum_layout = cute.make_layout((elements, self.num_wg_dQ))

    @property
    def _stored_columns(self) -> int:
        return int(self.tile_hdim + self.beside * self.num_wg_dQ // self.AtomLayoutMdQ)

    def dQaccum_store(self, *args: Any) -> None:
        """As the base's with wider tiles of dQ."""
        columns = self.tile_hdim
        self.tile_hdim = self._stored_columns
        self.tma_copy_bytes["dQ"] = self.tile_m * self.tile_hdim // self.num_wg_dQ * Float32.width // 8
        FlashAttentionBackwardSm90.dQaccum_store(self, *args)
        self.tile_hdim = columns

    def _place_row_sums(self, *_scheduler: Any) -> None:
        pass

    def _add_row_sums(self, m_block: Int32, wide: cute.Tensor) -> None:
        pass


class DeterministicBackwardSm90(BesideBackwardSm90):
    """The same, its additions in a fixed order."""

    ordered = True
