"""The two operators of torch.library: one forward, one backward, opaque to torch.compile, with shapes for tracing.

Which backend computes is decided when an operator runs or is traced, from what a `Case` holds, so forward, backward and
the shapes of what is saved agree.
"""

from typing import Any

import torch
from torch import Tensor

from gproj.backends import chosen_module, keeps_rows
from gproj.problem import Problem, Saved, case_of

_SETTINGS = (
    "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k, "
    "bool causal, float scale, str method, str backend, bool deterministic"
)


@torch.library.custom_op(
    "gproj::forward",
    mutates_args=(),
    schema=f"(Tensor q, Tensor k, Tensor v, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def forward(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """O, log-sum-exp and what else `Saved` holds, of the backend that the settings choose."""
    problem, backend = _problem(*settings)
    return tuple(chosen_module(case_of(q, k, v, problem), backend).forward(q, k, v, problem))


@torch.library.custom_op(
    "gproj::backward",
    mutates_args=(),
    schema=(
        "(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor beside_o, Tensor strongest, "
        f"{_SETTINGS}) -> (Tensor, Tensor, Tensor)"
    ),
)
def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    beside_o: Tensor,
    strongest: Tensor,
    *settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv."""
    problem, backend = _problem(*settings)
    module = chosen_module(case_of(q, k, v, problem), backend)
    return tuple(module.backward(grad, q, k, v, Saved(o, lse, beside_o, strongest), problem))


@forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    problem, backend = _problem(*settings)
    kept = keeps_rows(case_of(q, k, v, problem), backend)
    rows = (q.shape[1], q.shape[0]) if problem.cu_seqlens_q is not None else q.shape[:3]
    return (
        torch.empty_like(q),
        q.new_empty(rows, dtype=torch.float32),
        torch.empty_like(q) if kept else q.new_empty(0),
        q.new_empty(rows if kept else (0,), dtype=torch.int32),
    )


@backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, cu_seqlens_q, cu_seqlens_k, *ctx.settings = inputs
    ctx.mark_non_differentiable(*output[1:])
    # Else autograd fills zeros for the gradient of every statistic, one of them as large as q, in each backward.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, *output, cu_seqlens_q, cu_seqlens_k)


def _differentiate(ctx: Any, grad: Tensor | None, *_of_statistics: None) -> tuple[Tensor | None, ...]:
    *tensors, cu_seqlens_q, cu_seqlens_k = ctx.saved_tensors
    wanted = (None, None, None)
    if grad is not None:
        wanted = backward(grad, *tensors, cu_seqlens_q, cu_seqlens_k, *ctx.settings)
    return *wanted, *(None,) * (2 + len(ctx.settings))


forward.register_autograd(_differentiate, setup_context=_setup_context)


def _problem(
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    scale: float,
    method: str,
    backend: str,
    deterministic: bool,
) -> tuple[Problem, str]:
    """The settings as the backends take them, and the backend that was asked for."""
    problem = Problem(method, causal, scale, deterministic, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return problem, backend
