"""Compiling the two kernels, once for every combination of what they are specialised on."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from flash_attn.cute.interface import BwdConfig, _tile_size_bwd_sm90
from flash_attn.cute.utils import AuxData
from quack.compile_utils import make_fake_tensor

from gproj.hopper.row_sum_backward import RowSumBackwardSm90
from gproj.hopper.zero_sum_forward import ZeroSumForwardSm90

OPTIONS = "--enable-tvm-ffi"
NOT_USED = [None] * 9
"""Arguments of FlashAttention-4's kernels that no call here has."""


@dataclass(frozen=True)
class Kernel:
    """What a kernel is specialised on.

    Attributes:
        dtype: cutlass element type.
        head_dim: elements per head.
        group: query heads per key/value head.
        causal: whether the mask is causal.
    """

    dtype: Any
    head_dim: int
    group: int
    causal: bool


def backward_tiles(kernel: Kernel) -> BwdConfig:
    """Tiles of the backward kernel: the base's for causal masks; those for full ones are not always 64 rows a group."""
    return _tile_size_bwd_sm90(kernel.head_dim, kernel.head_dim, True, False)


@cache
def forward(kernel: Kernel, subject_class: type[ZeroSumForwardSm90]) -> Any:
    """Compiled forward: called with q, k, v, o, lse, scale, and [what stands beside o, key index, k]."""
    tile_m, tile_n = subject_class.tiles(kernel.head_dim)
    subject = subject_class(
        kernel.dtype,
        kernel.head_dim,
        kernel.head_dim,
        kernel.group,
        is_causal=kernel.causal,
        is_local=False,
        pack_gqa=False,
        tile_m=tile_m,
        tile_n=tile_n,
        num_stages=2,
        num_threads=384,
        Q_in_regs=False,
        intra_wg_overlap=True,
        mma_pv_is_rs=True,
    )
    q, k, v, o, rows, keys = (_fake(kernel.dtype, 4) for _ in range(6))
    lse, index = _fake(Float32, 3, 1), _fake(Int32, 3, 1)
    return cute.compile(
        subject,
        q,
        k,
        v,
        o,
        lse,
        Float32(1.0),
        *NOT_USED[:9],
        AuxData([rows, index, keys]),
        *NOT_USED[:2],
        cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True),
        options=OPTIONS,
    )


@cache
def backward(kernel: Kernel, subject_class: type[RowSumBackwardSm90]) -> Any:
    """Compiled backward: called with q, k, v, do, lse in base two, D, dQ accumulator, dK, dV, scale and r.

    In the place of r the deterministic one takes the semaphores of dQ, dK and dV, those of the latter two where query
    heads share them.
    """
    tiles = backward_tiles(kernel)
    subject = subject_class(
        kernel.dtype,
        kernel.head_dim,
        kernel.head_dim,
        kernel.group,
        kernel.causal,
        is_local=False,
        deterministic=subject_class.ordered,
        tile_m=tiles.m_block_size,
        tile_n=tiles.n_block_size,
        Q_stage=tiles.num_stages_Q,
        dO_stage=tiles.num_stages_dO,
        PdS_stage=tiles.num_stages_PdS,
        SdP_swapAB=tiles.SdP_swapAB,
        dKV_swapAB=tiles.dKV_swapAB,
        dQ_swapAB=tiles.dQ_swapAB,
        AtomLayoutMSdP=tiles.AtomLayoutMSdP,
        AtomLayoutNdKV=tiles.AtomLayoutNdKV,
        AtomLayoutMdQ=tiles.AtomLayoutMdQ,
        num_threads=(tiles.num_wg + 1) * 128,
        dQ_single_wg=tiles.dQ_single_wg,
    )
    q, k, v, do = (_fake(kernel.dtype, 4) for _ in range(4))
    lse, d, dq, rows = (_fake(Float32, 3, 4) for _ in range(4))
    semaphores: list[Any] = [None if subject_class.beside else rows, *NOT_USED[:2]]
    if subject_class.ordered:
        shared = kernel.group > 1
        semaphores = [_fake(Int32, 4, 1) if each == 0 or shared else None for each in range(3)]
    if kernel.group == 1:
        dk, dv = (_fake(kernel.dtype, 4) for _ in range(2))
    else:
        dk, dv = (_fake(Float32, 3, 4) for _ in range(2))
    return cute.compile(
        subject,
        q,
        k,
        v,
        do,
        lse,
        d,
        dq,
        dk,
        dv,
        Float32(1.0),
        *NOT_USED[:6],
        *semaphores,
        AuxData(),
        *NOT_USED[:2],
        cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True),
        options=OPTIONS,
    )


def _fake(dtype: type[cutlass.Numeric], rank: int, divisibility: int = 0) -> cute.Tensor:
    """A tensor of unknown sizes whose last dimension is contiguous, aligned to 16 bytes unless told otherwise."""
    return make_fake_tensor(dtype, tuple(cute.sym_int() for _ in range(rank)), divisibility or 128 // dtype.width)
