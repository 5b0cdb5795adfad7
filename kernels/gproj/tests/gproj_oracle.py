"""Inputs of this member's tests and their results in float64."""

from collections.abc import Callable

import torch
from torch import Tensor


def draw(
    batch: int,
    heads: int,
    kv_heads: int,
    seq_q: int,
    seq_k: int,
    head_dim: int,
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cpu",
) -> tuple[list[Tensor], Tensor]:
    """Leaves q, k, v and the gradient of o."""
    generator = torch.Generator().manual_seed(seq_q * 1000 + seq_k)
    sizes = ((heads, seq_q), (kv_heads, seq_k), (kv_heads, seq_k))
    leaves = [torch.randn(batch, n, seq, head_dim, generator=generator).to(device, dtype) for n, seq in sizes]
    grad = torch.randn(batch, heads, seq_q, head_dim, generator=generator).to(device, dtype)
    return [x.requires_grad_() for x in leaves], grad


def drifted(ratio: float, seq: int = 512, head_dim: int = 64, device: str = "cpu") -> tuple[list[Tensor], Tensor]:
    """Keys with a common offset `ratio` times their spread, and logits of deviation 16."""
    generator = torch.Generator().manual_seed(1)
    shape = (1, 2, seq, head_dim)
    offset = ratio * torch.randn(1, 2, 1, head_dim, generator=generator)
    k = torch.randn(shape, generator=generator) + offset
    q, v, grad = 16 * torch.randn(shape, generator=generator), *torch.randn(2, *shape, generator=generator)
    return [x.to(device, torch.bfloat16).requires_grad_() for x in (q, k, v)], grad.to(device, torch.bfloat16)


def exact(leaves: list[Tensor], grad: Tensor, causal: bool, scale: float) -> list[Tensor]:
    """o, dq, dk, dv by torch's autograd in float64."""
    q, k, v = (x.detach().double().requires_grad_() for x in leaves)
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).mT * scale
    hidden = torch.zeros(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if causal:
        hidden = torch.ones_like(hidden).triu(k.shape[2] - q.shape[2] + 1)
    p = scores.masked_fill(hidden, -1e30).softmax(-1).masked_fill(hidden, 0.0)
    o = p @ v.repeat_interleave(group, 1)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v), grad.double())]


def computed(function: Callable[..., Tensor], leaves: list[Tensor], grad: Tensor, **settings: object) -> list[Tensor]:
    """o, dq, dk, dv of an implementation."""
    o = function(*leaves, **settings)
    return [o.detach(), *torch.autograd.grad(o, leaves, grad)]


def error(got: Tensor, wanted: Tensor) -> float:
    """Relative Frobenius error."""
    return float((got.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-30))
