"""Products that are wider than their operand: chunks of constants, or a second operand, behind it in shared memory."""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import LayoutEnum
from quack import layout_utils, sm90_utils

CHUNK = 64
"""Columns of an operand that are contiguous for the tensor cores: 128 bytes, where they divide its width."""
HALF_CHUNK = 32
"""The same where they do not."""
EXTRA = 8
"""Further columns: the narrowest step of a product's width."""
WIDEST = 256
"""Columns of one product."""
ROWS = 64
"""Rows of one product: those of a warp group."""


def product(dtype: Any, columns: int, source: warpgroup.OperandSource) -> warpgroup.MmaF16BF16Op:
    """64 rows of A, by rows, times `columns` columns of B, by columns, in FP32."""
    return warpgroup.MmaF16BF16Op(
        dtype,
        Float32,
        (ROWS, columns, 16),
        source,
        warpgroup.OperandMajorMode.K,
        warpgroup.OperandMajorMode.MN,
    )


def chunk_of(columns: int) -> int:
    """Columns that are contiguous in an operand of that many, as the base lays it out."""
    return CHUNK if columns % CHUNK == 0 else HALF_CHUNK


def operand_layout(dtype: Any, rows: int, columns: int, chunk: int) -> cute.Layout:
    """Layout of whole chunks, `rows` by `columns`, one after another.

    Descriptors made of it for a product over all its columns serve a product over fewer: they tell where the operand
    begins and how far one chunk is from the next.
    """
    return sm90_utils.make_smem_layout(dtype, LayoutEnum.ROW_MAJOR, (rows, columns), None, major_mode_size=chunk).outer


def descriptors(dtype: Any, start: cute.Pointer, layout: cute.Layout, columns: int, source: Any) -> cute.Tensor:
    """An operand B in shared memory, of `operand_layout` from `start` on, as a product's instruction takes it."""
    operand = layout_utils.transpose_view(cute.make_tensor(start, layout))
    thread = cute.make_tiled_mma(product(dtype, columns, source)).get_slice(0)
    return thread.make_fragment_B(thread.partition_B(operand))


def accumulator(columns: int) -> cute.Tensor:
    """FP32 accumulator of a warp group's 64 rows; its registers go from one block of eight columns to the next."""
    return cute.make_rmem_tensor(_accumulator_layout(columns), Float32)


def accumulator_part(whole: cute.Tensor, first: int, columns: int) -> cute.Tensor:
    """The registers of `columns` columns from `first` on."""
    return cute.make_tensor(whole.iterator + first * ROWS // 128, _accumulator_layout(columns))


def _accumulator_layout(columns: int) -> cute.Layout:
    return cute.make_layout(((2, 2, columns // EXTRA), 1, 1))


@dataclass(frozen=True)
class WideProduct:
    """A product with staged operand B in shared memory, A in registers.

    Attributes:
        mma: the instruction.
        into: accumulator.
        operand: B as descriptors, (…, stages).
    """

    mma: Any
    into: cute.Tensor
    operand: cute.Tensor

    @classmethod
    def create(
        cls,
        dtype: Any,
        start: cute.Pointer,
        rows: int,
        stages: cute.Layout,
        into: cute.Tensor,
        columns: int,
        chunk: int,
    ) -> "WideProduct":
        """B is `rows` by `columns`, in whole chunks from `start` on."""
        chunks = -(-columns // chunk) * chunk
        source = warpgroup.OperandSource.RMEM
        layout = cute.append(operand_layout(dtype, rows, chunks, chunk), stages)
        operand = descriptors(dtype, start, layout, chunks, source)
        return cls(cute.make_tiled_mma(product(dtype, columns, source)), into, operand)


def multiply(
    products: list[WideProduct], a: cute.Tensor, *, zero_init: Boolean, B_idx: Int32, wg_wait: int = -1
) -> None:
    """All products of one A, issued together: whoever waits, waits for all or none."""
    warpgroup.fence()
    for each in products:
        _issue(each.mma, each.into, a, each.operand[None, None, None, B_idx], zero_init)
    warpgroup.commit_group()
    if wg_wait >= 0:
        warpgroup.wait_group(wg_wait)


@cute.jit
def _issue(mma: cute.TiledMma, into: cute.Tensor, a: cute.Tensor, b: cute.Tensor, zero_init: Boolean) -> None:
    atom = cute.make_mma_atom(mma.op)
    atom.set(warpgroup.Field.ACCUMULATE, not zero_init)
    for k in cutlass.range_constexpr(cute.size(a.shape[2])):
        cute.gemm(atom, into, a[None, None, k], b[None, None, k], into)
        atom.set(warpgroup.Field.ACCUMULATE, True)


def storage_with(storage: Any, behind: str, dtype: Any, elements: int, align: int) -> Any:
    """A struct of shared memory with room for `elements` more behind the field `behind`."""
    fields = {}
    for name, kind in storage._annotations.items():
        fields[name] = kind
        if name == behind:
            fields["sBehind"] = cute.struct.Align[cute.struct.MemRange[dtype, elements], align]
    return cute.struct(type("SharedStorage", (), {"__annotations__": fields}))
