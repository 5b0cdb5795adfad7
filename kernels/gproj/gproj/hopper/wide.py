"""Products that are eight columns wider than their operand: a chunk of constants behind it in shared memory."""

from typing import Any

import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import LayoutEnum
from quack import sm90_utils

CHUNK = 64
"""Columns of an operand that are contiguous for the tensor cores: 128 bytes."""
EXTRA = 8
"""Further columns: the narrowest step of a product's width."""


def product(dtype: Any, columns: int, source: warpgroup.OperandSource) -> warpgroup.MmaF16BF16Op:
    """64 rows of A, by rows, times `columns` columns of B, by columns, in FP32."""
    return warpgroup.MmaF16BF16Op(
        dtype,
        Float32,
        (64, columns, 16),
        source,
        warpgroup.OperandMajorMode.K,
        warpgroup.OperandMajorMode.MN,
    )


def operand_layout(dtype: Any, rows: int, columns: int) -> cute.Layout:
    """Layout of whole chunks, `rows` by `columns`, one after another.

    Descriptors made of it for a product over all its columns serve a product over fewer: they tell where the operand
    begins and how far one chunk is from the next.
    """
    return sm90_utils.make_smem_layout(dtype, LayoutEnum.ROW_MAJOR, (rows, columns), None, major_mode_size=CHUNK).outer


def storage_with(storage: Any, behind: str, dtype: Any, rows: int, align: int) -> Any:
    """A struct of shared memory with one more chunk, of `rows` rows, behind the field `behind`."""
    fields = {}
    for name, kind in storage._annotations.items():
        fields[name] = kind
        if name == behind:
            fields["sConstants"] = cute.struct.Align[cute.struct.MemRange[dtype, rows * CHUNK], align]
    return cute.struct(type("SharedStorage", (), {"__annotations__": fields}))
