"""The Triton kernels against float64, interpreted without a GPU and compiled on one: the same cases in both."""

from itertools import product

import pytest
import torch
from torch import Tensor

from gproj import attention, attention_varlen
from gproj_oracle import computed, draw, drifted, error, exact

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
arithmetic = pytest.importorskip("gproj.triton.arithmetic")
narrowed, rounded = arithmetic.narrowed, arithmetic.rounded

METHODS = ("gproj", "gproj-dk", "zerosum", "unfused")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
LIMIT = {torch.bfloat16: 0.004, torch.float16: 0.0006}


# batch, heads, kv_heads, seq_q, seq_k, head_dim, causal, dtype
SMALL = [
    (1, 2, 1, 40, 70, 64, True, torch.bfloat16),
    (1, 2, 2, 70, 40, 24, True, torch.bfloat16),
    (1, 1, 1, 33, 65, 96, False, torch.bfloat16),
    (1, 1, 1, 33, 33, 256, True, torch.bfloat16),
    (1, 1, 1, 17, 40, 200, True, torch.float16),
    (2, 3, 1, 20, 20, 8, False, torch.float16),
    (2, 2, 1, 1, 37, 16, True, torch.bfloat16),
    (1, 2, 2, 64, 64, 32, True, torch.float16),
]


@pytest.mark.parametrize(
    ("method", "case"),
    [*product(METHODS, SMALL[:2]), *product(("gproj-dk", "zerosum"), SMALL[2:])],
    ids=lambda x: x if isinstance(x, str) else "x".join(str(size).removeprefix("torch.") for size in x),
)
def test_small(case, method, device) -> None:  # type: ignore[no-untyped-def]
    *sizes, causal, dtype = case
    leaves, grad = draw(*sizes, dtype=dtype, device=device)
    got = computed(attention, leaves, grad, causal=causal, method=method, backend="triton")
    for result, reference in zip(got, exact(leaves, grad, causal, sizes[-1] ** -0.5), strict=True):
        assert result.shape == reference.shape
        assert result.dtype == dtype
        assert error(result, reference) < LIMIT[dtype]


@on_gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "sizes",
    [
        (2, 4, 4, 1024, 1024, 64),
        (2, 8, 2, 1000, 1333, 128),
        (1, 4, 1, 777, 500, 128),
        (1, 4, 2, 512, 512, 256),
        (1, 4, 2, 300, 700, 192),
        (1, 2, 2, 513, 1025, 96),
        (1, 2, 1, 257, 255, 80),
        (1, 2, 2, 129, 640, 40),
        (4, 2, 2, 128, 128, 8),
    ],
)
def test_full_size(sizes, causal, dtype, method, device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = draw(*sizes, dtype=dtype, device=device)
    got = computed(attention, leaves, grad, causal=causal, method=method, backend="triton")
    for result, reference in zip(got, exact(leaves, grad, causal, sizes[-1] ** -0.5), strict=True):
        assert error(result, reference) < LIMIT[dtype]


@pytest.mark.parametrize("method", ["gproj", "gproj-dk", "zerosum"])
def test_drifted_keys(method, device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = drifted(300.0, 1024 if device == "cuda" else 96, device=device)
    got = computed(attention, leaves, grad, causal=True, method=method, backend="triton")
    errors = [error(*pair) for pair in zip(got, exact(leaves, grad, True, 0.125), strict=True)]
    assert max(errors[:2]) < 0.0035
    assert errors[3] < 0.0035
    if method == "gproj":
        assert errors[2] > 0.003  # the published method leaves dk as it found it
    else:
        assert errors[2] < 0.003


def test_the_repair_of_the_exponent_alone_loses_dq(device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = drifted(300.0, 96, device=device)
    dq = computed(attention, leaves, grad, causal=True, method="unfused", backend="triton")[1]
    assert error(dq, exact(leaves, grad, True, 0.125)[1]) > 0.5


@pytest.mark.parametrize("method", ["gproj", "zerosum"])
def test_agrees_with_the_reference(method, device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = drifted(30.0, 64, 32, device)
    got, wanted = (
        computed(attention, leaves, grad, causal=True, method=method, backend=backend)
        for backend in ("triton", "reference")
    )
    assert [error(*pair) < 0.003 for pair in zip(got, wanted, strict=True)] == [True] * 4


@pytest.mark.parametrize("method", ["gproj", "zerosum"])
def test_any_strides_without_copies(method, device) -> None:  # type: ignore[no-untyped-def]
    """Views of a fused projection, of a transposed one, columns that are not adjacent, a gradient without strides."""
    leaves, grad = draw(2, 1, 1, 20, 20, 16, device=device)
    plain = computed(attention, leaves, grad, causal=True, method=method, backend="triton")
    fused = torch.stack([x.detach().transpose(1, 2) for x in leaves], 2)  # (batch, seq, 3, heads, head_dim)
    columns = torch.stack([x.detach() for x in leaves], -1)  # (batch, heads, seq, head_dim, 3)
    for views in (
        [fused[:, :, i].transpose(1, 2) for i in range(3)],
        [columns[..., i] for i in range(3)],
        [x.detach().mT.contiguous().mT for x in leaves],
    ):
        assert not any(view.is_contiguous() for view in views)
        again = computed(
            attention, [x.requires_grad_() for x in views], grad, causal=True, method=method, backend="triton"
        )
        assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    ones = torch.ones_like(grad)
    spread = torch.ones((), device=device, dtype=grad.dtype).expand_as(grad)
    dense, expanded = (computed(attention, leaves, x, method=method, backend="triton") for x in (ones, spread))
    assert all(torch.equal(a, b) for a, b in zip(dense, expanded, strict=True))


@pytest.mark.parametrize("method", ["gproj-dk", "zerosum"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 0, 5, 8), (2, 4, 2, 5, 0, 8), (0, 4, 2, 5, 3, 8), (1, 1, 1, 1, 1, 8)])
def test_empty_and_single(sizes, causal, method, device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = draw(*sizes, device=device)
    o, dq, dk, dv = computed(attention, leaves, grad, causal=causal, method=method, backend="triton")
    assert [x.shape for x in (o, dq, dk, dv)] == [grad.shape, *(x.shape for x in leaves)]
    if sizes[3] == sizes[4] == 1:
        assert torch.equal(o, leaves[2])
        assert torch.equal(dv, grad)
    else:
        assert not any(bool(x.any()) for x in (o, dq, dk, dv))


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_see_no_key(method, device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = draw(1, 1, 1, 40, 7, 16, device=device)
    o, dq, _, _ = computed(attention, leaves, grad, causal=True, method=method, backend="triton")
    assert not o[..., :33, :].any()
    assert not dq[..., :33, :].any()
    assert o[..., 33:, :].any()


def packed(lengths: list[int], heads: int, device: str, seed: int) -> tuple[Tensor, Tensor]:
    """(total, heads, 16) and its offsets."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(sum(lengths), heads, 16, generator=generator).to(device, torch.bfloat16)
    offsets = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return values.requires_grad_(), offsets.to(device)


@pytest.mark.parametrize("backend", ["triton", "reference"])
@pytest.mark.parametrize(("method", "causal"), [*product(METHODS, [True]), ("zerosum", False)])
def test_packed_sequences_are_the_dense_ones(causal, method, backend, device) -> None:  # type: ignore[no-untyped-def]
    lengths_q, lengths_k = [20, 0, 1, 35], [33, 4, 1, 20]
    q, offsets_q = packed(lengths_q, 2, device, 0)
    (k, offsets_k), (v, _) = (packed(lengths_k, 1, device, seed) for seed in (1, 2))
    grad = packed(lengths_q, 2, device, 3)[0].detach()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention_varlen(
            q, k, v, offsets_q, offsets_k, 35, 33, causal=causal, method=method, backend=backend
        )  # fmt: skip

    together = computed(call, [q, k, v], grad)
    for index in range(len(lengths_q)):
        queries, keys = slice(*offsets_q[index : index + 2].tolist()), slice(*offsets_k[index : index + 2].tolist())
        ranges = (queries, keys, keys)
        leaves = [x.detach()[r].transpose(0, 1)[None].requires_grad_() for x, r in zip((q, k, v), ranges, strict=True)]
        alone = computed(
            attention, leaves, grad[queries].transpose(0, 1)[None], causal=causal, method=method, backend=backend
        )
        for whole, part, rows in zip(together, alone, (queries, *ranges), strict=True):
            assert torch.equal(whole[rows], part[0].transpose(0, 1))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_every_time(method, device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = drifted(30.0, 1024 if device == "cuda" else 64, device=device)
    first, second = (
        computed(attention, leaves, grad, causal=True, method=method, backend="triton", deterministic=True)
        for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_what_is_not_a_number_stays_so(device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = draw(1, 1, 1, 16, 16, 16, device=device)
    with torch.no_grad():
        leaves[0][0, 0, 3, 0] = float("nan")
    o, dq, dk, _ = computed(attention, leaves, grad, causal=True, method="zerosum", backend="triton")
    assert o[0, 0, 3].isnan().all()
    assert not o[0, 0, 4:].isnan().any()
    assert dq[0, 0, 3].isnan().all()
    assert dk[0, 0, :4].isnan().all()


@triton.jit
def round_kernel(x, y, n: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.arange(0, n)
    dtype: tl.constexpr = y.dtype.element_ty
    tl.store(y + places, narrowed(rounded(tl.load(x + places), dtype), dtype))


def special_values() -> Tensor:
    """Float32 bit patterns: every exponent with ties, their neighbours and the extremes; both signs; NaN, infinity."""
    exponents = torch.arange(256, dtype=torch.int64)[:, None] << 23
    mantissas = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x10000, 0x17FFF, 0x18000, 0x18001, 0x7FFFFF])
    bits = (exponents | mantissas).flatten()
    bits = torch.cat([bits, bits | 1 << 31])
    return bits.to(torch.uint32).view(torch.float32)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # numpy's, where float16 becomes infinite
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_is_that_of_torch_bit_by_bit(dtype: torch.dtype, device: str) -> None:
    values = special_values()
    values = torch.cat([values, values.new_zeros(8192 - len(values))]).to(device)
    got = torch.empty(8192, dtype=dtype, device=device)
    round_kernel[(1,)](values, got, 8192)
    wanted = values.to(dtype)
    number = ~wanted.isnan()
    assert torch.equal(number, ~got.isnan())
    assert torch.equal(got[number].view(torch.int16), wanted[number].view(torch.int16))


@on_gpu
@pytest.mark.parametrize("method", METHODS)
def test_cuda_graph(method, device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = draw(1, 2, 2, 256, 256, 64, device=device)

    def step() -> tuple[Tensor, ...]:
        o = attention(*leaves, causal=True, method=method, backend="triton")
        return o, *torch.autograd.grad(o, leaves, grad)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        wanted = step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@on_gpu
def test_more_elements_than_32_bits_count(device) -> None:  # type: ignore[no-untyped-def]
    """The last head of a tensor of 2^31 elements and more is the head alone."""
    q, k, v, grad = (
        torch.empty(1, 33, 2**20, 64, device=device, dtype=torch.bfloat16).normal_()[:, :, : 2**20 : 2**10]
        for _ in range(4)
    )
    assert (q.shape[1] - 1) * q.stride(1) >= 2**31
    whole = computed(attention, [x.requires_grad_() for x in (q, k, v)], grad, causal=True, backend="triton")
    last = [x.detach()[:, -1:].contiguous().requires_grad_() for x in (q, k, v)]
    alone = computed(attention, last, grad[:, -1:].contiguous(), causal=True, backend="triton")
    assert all(torch.equal(a[:, -1:], b) for a, b in zip(whole, alone, strict=True))


@on_gpu
def test_rows_farther_apart_than_32_bits_reach_within_a_tile(device) -> None:  # type: ignore[no-untyped-def]
    leaves, grad = draw(1, 1, 1, 130, 130, 64, device=device)
    plain = computed(attention, leaves, grad, causal=True, method="zerosum", backend="triton")
    far = torch.empty(130 * 2**24 + 64, device=device, dtype=torch.bfloat16).as_strided(
        (1, 1, 130, 64), (0, 0, 2**24, 1)
    )
    far.copy_(leaves[1].detach())
    again = computed(
        attention, [leaves[0], far.requires_grad_(), leaves[2]], grad, causal=True, method="zerosum", backend="triton"
    )
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
