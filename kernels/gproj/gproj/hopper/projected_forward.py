"""The forward of the published method on Hopper: beside O it leaves P·K, which the projection of dQ needs.

The zero-sum forward has the rounded weights in registers, multiplies them with V and yields their sum; here each stage
of V has the same block of K behind it, loaded once more, and P multiplies both. P·K divided by the weights' sum is a
mean of keys; less the row's anchor, which is one of them, it is of the size of the keys' spread whatever offset they
share, so that BF16 holds it: rounded with the offset it would bring 0.2% of the leak back.

The accumulators of O and P·K of more than 128 columns each do not fit into the registers: there the kernel runs twice,
once for O and once with K in the place of V.
"""

from typing import Any

import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.utils import LayoutEnum
from quack import copy_utils, sm90_utils

from gproj.hopper.wide import CHUNK, EXTRA, WIDEST
from gproj.hopper.zero_sum_forward import ZeroSumForwardSm90


class _KeepsKeys(ZeroSumForwardSm90):
    """The zero-sum forward with P·K less the anchor in the place of the residual of O."""

    @property
    def first_of_keys(self) -> int:
        """Column of the accumulator where P·K begins."""
        raise NotImplementedError

    def _row_values(self, upper: int, anchor: Int32, head: Int32, batch: Int32) -> cute.Tensor:
        """P·K less the anchor."""
        values = self._columns_of_row(self.first_of_keys, self.tile_hdim, upper)
        key = self._keys[batch, anchor, head // self.qhead_per_kvhead, None]
        for pair in range(self.tile_hdim // EXTRA):
            two = cute.make_rmem_tensor(2, self.dtype)
            cute.autovec_copy(cute.local_tile(key, (2,), (4 * pair + self._thread % 4,)), two)
            for place in range(2):
                values[2 * pair + place] = values[2 * pair + place] - two[place].to(Float32)
        return values


class ProjectedForwardSm90(_KeepsKeys):
    """O and P·K in one launch."""

    @staticmethod
    def tiles(head_dim: int) -> tuple[int, int]:
        """Two warp groups: the accumulators of O and of P·K, of the scores and P must fit into their registers."""
        return (128, 128) if head_dim < 2 * CHUNK else (128, 96)

    @property
    def columns(self) -> int:
        """V, then K."""
        return int(self.tile_hdimv + self.tile_hdim)

    @property
    def first_of_keys(self) -> int:
        """Behind O."""
        return int(self.tile_hdimv)

    def widths(self) -> tuple[int, ...]:
        """One product where it can be that wide, else one of V and one of K with the constants."""
        whole = self.columns + EXTRA
        return (whole,) if whole <= WIDEST else (self.tile_hdimv, self.tile_hdim + EXTRA)

    @property
    def tma_copy_bytes(self) -> dict[str, int]:
        """Bytes that complete a stage: V's has K as well."""
        return self._copy_bytes

    @tma_copy_bytes.setter
    def tma_copy_bytes(self, of_base: dict[str, int]) -> None:
        self._copy_bytes = of_base | {"V": of_base["V"] + of_base["K"]}

    def load(self, *args: Any) -> None:
        """As the base's; where K goes the second time is prepared."""
        keys, values, atom, pipeline = args[1], args[5], args[7], args[10]
        seqlen_of, scheduler_of = args[16:18]
        # One tile to a block of threads: the base's loop over tiles makes one turn.
        _, head_idx, batch_idx, _ = scheduler_of().initial_work_tile_info().tile_idx
        keys = seqlen_of(batch_idx).offset_batch_K(keys, batch_idx, dim=3)
        keys = keys[None, None, head_idx // self.qhead_per_kvhead]
        blocks = cute.local_tile(keys, (self.tile_n, self.tile_hdim), (None, 0))
        stage = sm90_utils.make_smem_layout(self.dtype, LayoutEnum.ROW_MAJOR, (self.tile_n, self.tile_hdim), None)
        behind = values.iterator + self.tile_n * self.tile_hdimv
        stages = cute.make_tensor(behind, cute.append(stage.outer, self._stages()))
        copy, _, _ = copy_utils.tma_get_copy_fn(atom, 0, cute.make_layout(1), blocks, stages)
        self._load_behind = copy_utils.tma_producer_copy_fn(copy, pipeline)
        super().load(*args)

    def load_KV(self, *args: Any, block: Int32, producer_state: Any, K_or_V: str, **kwargs: Any) -> None:
        """As the base's; K goes behind V."""
        if K_or_V == "V":
            self._load_behind(src_idx=block, producer_state=producer_state)
        super().load_KV(*args, block=block, producer_state=producer_state, K_or_V=K_or_V, **kwargs)


class OutputForwardSm90(ZeroSumForwardSm90):
    """The first of two launches: O and log-sum-exp alone."""

    def _store_extra(self, *_place: Int32) -> None:
        pass


class KeysForwardSm90(_KeepsKeys):
    """The second, whose V is K: P·K less the anchor and the anchor's index alone."""

    @property
    def first_of_keys(self) -> int:
        """In the place of O."""
        return 0

    def epilogue(self, acc_O: cute.Tensor, lse: cute.Tensor, *base: Any) -> None:
        """Store the two."""
        seqlen, m_block, head_idx, batch_idx = base[3], *base[8:]
        self._store_extra(seqlen.seqlen_q, seqlen.seqlen_k, m_block, head_idx, batch_idx)
