"""One call of the two kernels and of what stands before and after them."""

from typing import Any, NamedTuple

import cutlass
import torch
import triton
from flash_attn.cute.utils import AuxData
from torch import Tensor

from gproj.hopper import compiled
from gproj.hopper.compiled import NOT_USED, Kernel
from gproj.hopper.deterministic_backward import DeterministicBackwardSm90
from gproj.hopper.postprocess import postprocess_kernel
from gproj.hopper.preprocess import COLUMNS, preprocess_kernel
from gproj.hopper.projected_forward import KeysForwardSm90, OutputForwardSm90, ProjectedForwardSm90
from gproj.hopper.register_order import Accumulators
from gproj.hopper.row_sum_backward import RowSumBackwardSm90
from gproj.hopper.support import BYTES, INDEX_BITS, SHARE_STEPS
from gproj.hopper.zero_sum_forward import ZeroSumForwardSm90
from gproj.problem import GPROJ, ZEROSUM, Gradients, Problem, Saved

ELEMENTS = {torch.bfloat16: cutlass.BFloat16, torch.float16: cutlass.Float16}
FORWARDS = {ZEROSUM: ZeroSumForwardSm90, GPROJ: ProjectedForwardSm90}
TWO_LAUNCHES = (OutputForwardSm90, KeysForwardSm90)
"""Of the published method, the second with K for V, where head_dim is more than ONE_LAUNCH."""
ONE_LAUNCH = 128
BACKWARD = RowSumBackwardSm90
DETERMINISTIC_BACKWARD = DeterministicBackwardSm90


def forward_classes(method: str, head_dim: int) -> tuple[Any, ...]:
    """The kernels of a forward, in their order."""
    return TWO_LAUNCHES if method == GPROJ and head_dim > ONE_LAUNCH else (FORWARDS[method],)


def forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Saved:
    """O and what the backward needs; tensors are (batch, heads, seq, head_dim)."""
    o, beside_o = torch.empty_like(q), torch.empty_like(q)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    strongest = q.new_empty(q.shape[:3], dtype=torch.int32)
    q, k, v = _aligned(q), _aligned(k), _aligned(v)
    with torch.cuda.device(q.device):
        for subject, values in zip(forward_classes(problem.method, q.shape[3]), (v, k), strict=False):
            compiled.forward(_kernel(q, k, problem), subject)(
                *_by_rows(q, k, values, o),
                lse,
                problem.scale,
                *NOT_USED[:9],
                AuxData([*_by_rows(beside_o), strongest, *_by_rows(k)]),
                *NOT_USED[:2],
            )
    return Saved(o, lse, beside_o, strongest)


def backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Saved, problem: Problem) -> Gradients:
    """dQ, dK and dV from what the forward saved."""
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    q, k, v, grad = _aligned(q), _aligned(k), _aligned(v), _aligned(grad)
    kernel = _kernel(q, k, problem)
    tiles = compiled.backward_tiles(kernel)
    rows, columns = tiles.m_block_size, tiles.n_block_size
    batch, heads, seq_q, head_dim = q.shape
    padded, padded_k = _padded(seq_q, rows), _padded(k.shape[2], columns)
    chosen: Any = DETERMINISTIC_BACKWARD if problem.deterministic else BACKWARD
    lse_log2, d = (q.new_empty(batch, heads, padded, dtype=torch.float32) for _ in range(2))
    row_sums = None if chosen.beside else torch.empty_like(d)
    of_dq = Accumulators.of_dq(tiles, head_dim, chosen.beside)
    of_dkv = Accumulators.of_dkv(tiles, head_dim)
    dq_sum = q.new_empty(batch, heads, padded // rows * of_dq.stored, dtype=torch.float32)
    # Query heads that share a key head add to one accumulator.
    shared = (batch, k.shape[1], padded_k // columns * of_dkv.stored)
    into = [k.new_zeros(shared, dtype=torch.float32) for _ in range(2)] if kernel.group > 1 else _by_rows(dk, dv)
    at_row_sums: list[Tensor | None] = [row_sums, None, None]
    if chosen.ordered:
        at_row_sums = [_semaphore(q, padded // rows, 1), None, None]
        if kernel.group > 1:
            at_row_sums[1:] = (_semaphore(k, padded_k // columns, 2) for _ in range(2))
    with torch.cuda.device(q.device):
        preprocess_kernel[(padded // rows, batch * heads)](
            saved.o,
            saved.beside_o if problem.method == ZEROSUM else None,
            grad,
            saved.lse,
            lse_log2,
            d,
            row_sums,
            dq_sum,
            saved.o.stride()[:3],
            saved.beside_o.stride()[:3],
            grad.stride()[:3],
            seq_q,
            padded,
            HEADS=heads,
            HEAD_DIM=head_dim,
            COLUMNS=min(head_dim & -head_dim, COLUMNS),
            BESIDE=of_dq.stored // rows - head_dim,
            ROWS=rows,
        )
        compiled.backward(kernel, chosen)(
            *_by_rows(q, k, v, grad),
            lse_log2,
            d,
            dq_sum,
            *into,
            problem.scale,
            *NOT_USED[:6],
            *at_row_sums,
            AuxData(),
            *NOT_USED[:2],
        )
        taken = _Taken(row_sums, saved.strongest, k, saved.beside_o if problem.method == GPROJ else None)
        _convert(dq_sum, dq, padded, problem.scale, rows, of_dq, taken)
        if kernel.group > 1:
            _convert(into[0], dk, padded_k, problem.scale, columns, of_dkv)
            _convert(into[1], dv, padded_k, 1.0, columns, of_dkv)
    return Gradients(dq, dk, dv)


class _Taken(NamedTuple):
    """What is taken out of dQ: r per row, times the key that `strongest` names, or that and what `beyond` has more."""

    row_sums: Tensor | None
    strongest: Tensor
    keys: Tensor
    beyond: Tensor | None


def _convert(
    accumulator: Tensor,
    result: Tensor,
    padded: int,
    scale: float,
    rows: int,
    order: Accumulators,
    taken: _Taken | None = None,
) -> None:
    """An accumulator in the order of the kernel's registers to a gradient."""
    batch, heads, seq, _ = result.shape
    postprocess_kernel[(triton.cdiv(seq, rows) * order.pieces, batch * heads)](
        accumulator,
        result,
        *(taken or (None, None, None, None)),
        result.stride()[:3],
        taken.keys.stride()[:3] if taken else (0, 0, 0),
        taken.beyond.stride()[:3] if taken and taken.beyond is not None else (0, 0, 0),
        seq,
        taken.keys.shape[2] if taken else 0,
        padded,
        scale,
        HEADS=heads,
        GROUP=heads // taken.keys.shape[1] if taken else 1,
        ROWS=rows,
        GROUPS=order.groups,
        ALONG_M=order.along_m,
        SWAPPED=order.swapped,
        BLOCKS_M=order.blocks_m,
        BRICKS=order.bricks,
        STORED_BRICKS=order.stored_bricks,
        PIECE=order.piece,
        INDEX_BITS=INDEX_BITS,
        SHARE_STEPS=SHARE_STEPS,
    )


def _semaphore(x: Tensor, tiles: int, counters: int) -> Tensor:
    return x.new_zeros(*x.shape[:2], tiles, counters, dtype=torch.int32)


def _by_rows(*tensors: Tensor) -> list[Tensor]:
    """(batch, heads, seq, head_dim) as the kernels take them, (batch, seq, heads, head_dim); no copies."""
    return [x.detach().transpose(1, 2) for x in tensors]


def _kernel(q: Tensor, k: Tensor, problem: Problem) -> Kernel:
    return Kernel(ELEMENTS[q.dtype], q.shape[3], q.shape[1] // k.shape[1], problem.causal)


def _padded(length: int, tile: int) -> int:
    return triton.cdiv(length, tile) * tile


def _aligned(x: Tensor) -> Tensor:
    """`x`, or a copy where the copy engine cannot read it: a gradient of any strides, or a view begun off its grid."""
    elements = BYTES // x.element_size()
    strided = x.stride(3) == 1 and all(stride > 0 and stride % elements == 0 for stride in x.stride()[:3])
    return x if strided and x.data_ptr() % BYTES == 0 else torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)
