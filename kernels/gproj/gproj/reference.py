"""The reference backend: the methods in plain PyTorch, on every device, one packed sequence at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

from gproj import projected, unfused, zerosum
from gproj.problem import GPROJ_DK, UNFUSED, ZEROSUM, Case, Gradients, Problem, Saved


def supported(case: Case) -> str | None:
    """None: everything that the package documents is computed."""
    return None


def keeps_rows(method: str) -> bool:
    """Whether more is kept than o and the log-sum-exp."""
    return method == ZEROSUM


def forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Saved:
    """O and what the backward needs."""
    with torch.autocast(q.device.type, enabled=False):
        if problem.cu_seqlens_q is None:
            o, lse, residual, strongest = _forward(q, k, v, problem)
            residual = _laid_out(residual, q) if keeps_rows(problem.method) else residual
            return Saved(_laid_out(o, q), lse, residual, strongest)
        rows = (q.shape[1], q.shape[0])
        saved = Saved(
            torch.zeros_like(q),
            q.new_zeros(rows, dtype=torch.float32),
            torch.zeros_like(q) if keeps_rows(problem.method) else q.new_zeros(0),
            q.new_zeros(rows if keeps_rows(problem.method) else 0, dtype=torch.int32),
        )
        for queries, keys in _sequences(problem):
            one = _forward(_dense(q, queries), _dense(k, keys), _dense(v, keys), problem)
            saved.o[queries] = _packed(one.o)
            saved.lse[:, queries] = one.lse[0]
            if keeps_rows(problem.method):
                saved.beside_o[queries] = _packed(one.beside_o)
                saved.strongest[:, queries] = one.strongest[0]
        return saved


def backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Saved, problem: Problem) -> Gradients:
    """dq, dk and dv."""
    with torch.autocast(q.device.type, enabled=False):
        if problem.cu_seqlens_q is None:
            dq, dk, dv = _backward(grad, q, k, v, saved, problem)
            return Gradients(_laid_out(dq, q), _laid_out(dk, k), _laid_out(dv, v))
        gradients = Gradients(torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v))
        kept = keeps_rows(problem.method)
        for queries, keys in _sequences(problem):
            one = Saved(
                _dense(saved.o, queries),
                saved.lse[None, :, queries],
                _dense(saved.beside_o, queries) if kept else saved.beside_o,
                saved.strongest[None, :, queries] if kept else saved.strongest,
            )
            dq, dk, dv = _backward(
                _dense(grad, queries), _dense(q, queries), _dense(k, keys), _dense(v, keys), one, problem
            )
            gradients.dq[queries] = _packed(dq)
            gradients.dk[keys] = _packed(dk)
            gradients.dv[keys] = _packed(dv)
        return gradients


def _forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Saved:
    if problem.method == ZEROSUM:
        return Saved(*zerosum.forward(q, k, v, problem.causal, problem.scale))
    o, lse = unfused.forward(q, k, v, problem.causal, problem.scale)
    return Saved(o, lse, q.new_empty(0), q.new_empty(0, dtype=torch.int32))


def _backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Saved, problem: Problem) -> Gradients:
    if problem.method == ZEROSUM:
        return Gradients(*zerosum.backward(grad, q, k, v, *saved, problem.causal, problem.scale))
    settings = (grad, q, k, v, saved.o, saved.lse, problem.causal, problem.scale)
    if problem.method == UNFUSED:
        return Gradients(*unfused.backward(*settings))
    return Gradients(*projected.backward(*settings, repair_dk=problem.method == GPROJ_DK))


def _laid_out(x: Tensor, like: Tensor) -> Tensor:
    """`x` with the strides of torch.empty_like."""
    result = torch.empty_like(like)
    return x if result.stride() == x.stride() else result.copy_(x)


def _sequences(problem: Problem) -> Iterator[tuple[slice, slice]]:
    """Rows of queries and of keys of each packed sequence."""
    assert problem.cu_seqlens_q is not None
    assert problem.cu_seqlens_k is not None
    queries, keys = problem.cu_seqlens_q.tolist(), problem.cu_seqlens_k.tolist()
    for index in range(len(queries) - 1):
        yield slice(queries[index], queries[index + 1]), slice(keys[index], keys[index + 1])


def _dense(x: Tensor, rows: slice) -> Tensor:
    """(1, heads, seq, head_dim) view of one packed sequence."""
    return x[rows].transpose(0, 1)[None]


def _packed(x: Tensor) -> Tensor:
    return x[0].transpose(0, 1)
