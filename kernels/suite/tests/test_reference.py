"""The float64 reference against torch's autograd in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gprojci_suite import reference


def draw(batch: int, heads: int, kv_heads: int, seq_q: int, seq_k: int, head_dim: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, seq_q), (kv_heads, seq_k), (kv_heads, seq_k), (heads, seq_q))
    return [torch.randn(batch, n, seq, head_dim, generator=generator).bfloat16() for n, seq in sizes]


def autograd(q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool, scale: float) -> tuple[Tensor, ...]:
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    scores = leaves[0] @ leaves[1].repeat_interleave(group, 1).mT * scale
    if causal:
        seq_q, seq_k = q.shape[2], k.shape[2]
        hidden = torch.ones(seq_q, seq_k, dtype=torch.bool).triu(seq_k - seq_q + 1)
        scores = scores.masked_fill(hidden, -1e30)
        o = scores.softmax(-1).masked_fill(hidden, 0) @ leaves[2].repeat_interleave(group, 1)
    else:
        o = scores.softmax(-1) @ leaves[2].repeat_interleave(group, 1)
    return o.detach(), *torch.autograd.grad(o, leaves, do.double())


@settings(deadline=None, max_examples=40)
@given(
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    seq_q=st.integers(1, 40),
    seq_k=st.integers(1, 40),
    causal=st.booleans(),
    scale=st.floats(0.01, 3),
    rows=st.integers(1, 50),
)
def test_against_autograd(
    kv_heads: int, group: int, seq_q: int, seq_k: int, causal: bool, scale: float, rows: int
) -> None:
    q, k, v, do = draw(2, kv_heads * group, kv_heads, seq_q, seq_k, 8)
    found = reference.attention(q, k, v, do, causal=causal, softmax_scale=scale, rows=rows)
    for got, wanted in zip((found.o, found.dq, found.dk, found.dv), autograd(q, k, v, do, causal, scale), strict=True):
        assert got.shape == wanted.shape
        assert got.dtype == torch.float64
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rows", [3, 256])
@pytest.mark.parametrize("shape", [(2, 4, 9, 12), (2, 1, 1, 12), (4, 9, 12), (9, 12)])
@pytest.mark.parametrize("kind", ["bool", "added"])
def test_under_a_mask_against_autograd(kind: str, shape: tuple[int, ...], rows: int) -> None:
    q, k, v, do = draw(2, 4, 2, 9, 12, 8)
    draws = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    mask = draws > 0.4 if kind == "bool" else torch.where(draws > 0.4, draws, -torch.inf)
    if shape[-2] > 1:
        mask[..., 5, :] = False if kind == "bool" else -torch.inf  # a row that sees nothing
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    keys, values = (x.repeat_interleave(2, 1) for x in leaves[1:])
    added = torch.where(mask, 0.0, -torch.inf) if kind == "bool" else mask
    p = (leaves[0] @ keys.mT * 0.5 + added.double()).clamp(min=-1e30).softmax(-1)
    o = (p * (added.double().expand(p.shape) > -torch.inf)) @ values
    found = reference.attention(q, k, v, do, causal=False, softmax_scale=0.5, mask=mask, rows=rows)
    wanted = (o.detach(), *torch.autograd.grad(o, leaves, do.double()))
    for got, right in zip((found.o, found.dq, found.dk, found.dv), wanted, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-12)


def test_the_last_query_sees_every_key() -> None:
    q, k, v, do = draw(1, 1, 1, 2, 5, 8)
    causal = reference.attention(q, k, v, do, causal=True, softmax_scale=1.0)
    full = reference.attention(q, k, v, do, causal=False, softmax_scale=1.0)
    torch.testing.assert_close(causal.o[:, :, 1], full.o[:, :, 1])
    cut = reference.attention(q[:, :, :1], k[:, :, :4], v[:, :, :4], do[:, :, :1], causal=False, softmax_scale=1.0)
    torch.testing.assert_close(causal.o[:, :, 0], cut.o[:, :, 0])


def test_rows_that_see_nothing_are_zero() -> None:
    q, k, v, do = draw(1, 2, 1, 7, 3, 8)
    found = reference.attention(q, k, v, do, causal=True, softmax_scale=1.0)
    assert float(found.o[:, :, :4].abs().max()) == 0
    assert float(found.dq[:, :, :4].abs().max()) == 0
    assert float(found.o[:, :, 4:].abs().min()) > 0


def test_it_keeps_the_symmetries() -> None:
    q, k, v, do = (x.double() for x in draw(1, 1, 1, 16, 16, 8))
    plain = reference.attention(q, k, v, do, causal=True, softmax_scale=0.3)
    moved = reference.attention(q, k + 100.0, v, do, causal=True, softmax_scale=0.3)
    torch.testing.assert_close(plain.dq, moved.dq, rtol=1e-8, atol=1e-9)
    moved = reference.attention(q, k, v + 100.0, do, causal=True, softmax_scale=0.3)
    torch.testing.assert_close(plain.dk, moved.dk, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("logit", [1e4, 1e5])
def test_large_logits_stay_finite(logit: float) -> None:
    q, k, v, do = draw(1, 1, 1, 16, 16, 8)
    found = reference.attention(q.double() * logit, k, v, do, causal=True, softmax_scale=1.0)
    assert all(bool(torch.isfinite(x).all()) for x in (found.o, found.dq, found.dk, found.dv))
