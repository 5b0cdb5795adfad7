"""Both algorithms: right on every shape they document, accurate on drifted keys, clear about everything else."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gproj import UnsupportedInput, attention, unfused_attention, zerosum_attention
from gproj import projected as projected_module
from gproj_oracle import computed, draw, drifted, error, exact

Attention = Callable[..., Tensor]
BOTH = pytest.mark.parametrize("function", [attention, zerosum_attention])


@BOTH
@settings(deadline=None, max_examples=30)
@given(
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    seq_q=st.integers(1, 40),
    seq_k=st.integers(1, 40),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.05, 1.0]),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
)
def test_right_on_every_shape(
    function: Attention,
    kv_heads: int,
    group: int,
    seq_q: int,
    seq_k: int,
    causal: bool,
    scale: float | None,
    dtype: torch.dtype,
) -> None:
    leaves, grad = draw(2, kv_heads * group, kv_heads, seq_q, seq_k, 16, dtype)
    got = computed(function, leaves, grad, causal=causal, softmax_scale=scale)
    wanted = exact(leaves, grad, causal, 0.25 if scale is None else scale)
    for result, reference in zip(got, wanted, strict=True):
        assert result.shape == reference.shape
        assert result.dtype == dtype
        # dS of a row with one or two visible keys is a difference that cancels; what remains is the rounding of its
        # parts, a few times 2**-9 · |dO| · |V|.
        assert float((result.double() - reference).norm()) < 0.012 * float(reference.norm()) + 0.06


@BOTH
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(1, 2, 2, 700, 700, 64), (1, 2, 1, 300, 700, 96), (1, 2, 2, 700, 300, 128)])
def test_sequences_of_several_blocks(function: Attention, causal: bool, sizes: tuple[int, ...]) -> None:
    leaves, grad = draw(*sizes)
    got = computed(function, leaves, grad, causal=causal)
    for result, reference in zip(got, exact(leaves, grad, causal, sizes[-1] ** -0.5), strict=True):
        assert error(result, reference) < 0.005


@BOTH
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 0, 5, 8), (2, 4, 2, 5, 0, 8), (0, 4, 2, 5, 3, 8), (1, 1, 1, 1, 1, 8)])
def test_empty_and_single(function: Attention, causal: bool, sizes: tuple[int, ...]) -> None:
    leaves, grad = draw(*sizes)
    o, dq, dk, dv = computed(function, leaves, grad, causal=causal)
    assert [x.shape for x in (o, dq, dk, dv)] == [grad.shape, *(x.shape for x in leaves)]
    if sizes[3] == sizes[4] == 1:
        assert torch.equal(o, leaves[2])
        assert torch.equal(dv, grad)
    else:
        assert not any(bool(x.any()) for x in (o, dq, dk, dv))


def test_drifted_keys() -> None:
    leaves, grad = drifted(300.0)
    wanted = exact(leaves, grad, True, 0.125)
    projected = [error(*pair) for pair in zip(computed(attention, leaves, grad, causal=True), wanted, strict=True)]
    zerosum = [
        error(*pair) for pair in zip(computed(zerosum_attention, leaves, grad, causal=True), wanted, strict=True)
    ]
    assert max(projected[:2]) < 0.003
    assert projected[3] < 0.003
    assert 0.004 < projected[2] < 0.01  # the published method leaves dk as it found it
    assert max(zerosum) < 0.003
    both = [
        error(*pair)
        for pair in zip(computed(attention, leaves, grad, causal=True, method="gproj-dk"), wanted, strict=True)
    ]
    assert torch.equal(torch.tensor(both[:2]), torch.tensor(projected[:2]))
    assert both[2] < 0.0025


def test_the_known_repair_alone_leaves_dq_as_lost_as_it_was() -> None:
    leaves, grad = drifted(300.0)
    found = computed(unfused_attention, leaves, grad, causal=True)
    assert all(
        torch.equal(*pair)
        for pair in zip(found, computed(attention, leaves, grad, causal=True, method="unfused"), strict=True)
    )
    assert error(found[1], exact(leaves, grad, True, 0.125)[1]) > 1.0


def test_without_the_projection_dq_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves, grad = drifted(300.0)
    monkeypatch.setattr(projected_module, "project_to_zero_row_sum", lambda dq, ds, p, k: dq)
    dq = computed(attention, leaves, grad, causal=True)[1]
    assert error(dq, exact(leaves, grad, True, 0.125)[1]) > 1.0


@BOTH
def test_shifting_all_keys_moves_dq_by_rounding_only(function: Attention) -> None:
    """The shift is exact: whole numbers from 80 to 112 are BF16 values."""
    generator = torch.Generator().manual_seed(0)
    k = torch.randint(-16, 16, (1, 1, 128, 32), generator=generator).bfloat16()
    q, v, grad = (torch.randn(1, 1, 128, 32, generator=generator).bfloat16() for _ in range(3))
    assert torch.equal((k + 96).float(), k.float() + 96)
    plain, moved = (
        computed(
            function, [q.clone().requires_grad_(), keys.clone().requires_grad_(), v.clone().requires_grad_()], grad
        )
        for keys in (k, k + 96)
    )
    assert error(moved[1], plain[1].double()) < 0.006


@BOTH
def test_memory_layout_does_not_matter(function: Attention) -> None:
    leaves, grad = draw(2, 4, 2, 33, 33, 16)
    plain = computed(function, leaves, grad, causal=True)
    turned = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in leaves]
    again = computed(function, turned, grad.transpose(1, 2).contiguous().transpose(1, 2), causal=True)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@BOTH
def test_autocast_does_not_change_the_arithmetic(function: Attention) -> None:
    leaves, grad = draw(1, 2, 2, 65, 65, 16)
    plain = computed(function, leaves, grad, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = computed(function, leaves, grad, causal=True)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@BOTH
def test_large_logits(function: Attention) -> None:
    leaves, grad = draw(1, 1, 1, 64, 64, 16)
    leaves[0] = (leaves[0].detach() * 1e4).requires_grad_()
    assert all(bool(torch.isfinite(x).all()) for x in computed(function, leaves, grad, causal=True))


def bf16(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


@BOTH
@pytest.mark.parametrize(
    ("q", "k", "v", "scale", "problem"),
    [
        (torch.zeros(1, 2, 3, 8), bf16(1, 2, 3, 8), bf16(1, 2, 3, 8), None, "bfloat16 or float16"),
        (bf16(1, 2, 3, 8), bf16(1, 2, 3, 8).half(), bf16(1, 2, 3, 8), None, "one dtype"),
        (bf16(2, 3, 8), bf16(1, 2, 3, 8), bf16(1, 2, 3, 8), None, "q must be (batch, heads, seq, head_dim)"),
        (bf16(1, 2, 3, 8), bf16(1, 2, 3, 8), bf16(1, 2, 4, 8), None, "k and v must have one shape"),
        (bf16(1, 2, 3, 8), bf16(2, 2, 3, 8), bf16(2, 2, 3, 8), None, "agree in batch"),
        (bf16(1, 2, 3, 8), bf16(1, 2, 3, 4), bf16(1, 2, 3, 4), None, "agree in batch and head_dim"),
        (bf16(1, 3, 3, 8), bf16(1, 2, 3, 8), bf16(1, 2, 3, 8), None, "cannot share"),
        (bf16(1, 2, 3, 8), bf16(1, 0, 3, 8), bf16(1, 0, 3, 8), None, "cannot share"),
        (bf16(1, 2, 3, 8), bf16(1, 2, 3, 8).to("meta"), bf16(1, 2, 3, 8), None, "one device"),
        (bf16(1, 2, 3, 8), None, bf16(1, 2, 3, 8), None, "k must be a tensor"),
        (bf16(1, 2, 3, 8), bf16(1, 2, 3, 8), bf16(1, 2, 3, 8), 0.0, "above zero"),
        (bf16(1, 2, 3, 8), bf16(1, 2, 3, 8), bf16(1, 2, 3, 8), float("nan"), "finite"),
    ],
)
def test_everything_else_is_one_clear_error(
    function: Attention, q: Tensor, k: Tensor, v: Tensor, scale: float | None, problem: str
) -> None:
    with pytest.raises(UnsupportedInput) as caught:
        function(q, k, v, softmax_scale=scale)
    assert problem in str(caught.value)
