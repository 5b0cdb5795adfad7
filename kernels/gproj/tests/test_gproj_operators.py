"""The operators under what trains models: tracing, compilation, checkpointing, autocast, and models one cannot edit."""

from importlib.util import find_spec
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from gproj import UnsupportedInput, attention, attention_varlen, routed_sdpa
from gproj_oracle import computed, draw

METHODS = ("gproj", "gproj-dk", "zerosum", "unfused")
with_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
BACKENDS = ("reference", pytest.param("triton", marks=with_triton))
everywhere = pytest.mark.parametrize("backend", BACKENDS)


@pytest.mark.parametrize(
    ("layout", "method", "backend"),
    [
        *product(("dense", "transposed", "packed"), METHODS, ("reference",)),
        pytest.param("transposed", "gproj", "triton", marks=with_triton),
        pytest.param("packed", "zerosum", "triton", marks=with_triton),
    ],
)
def test_opcheck(layout: str, method: str, backend: str, device: str) -> None:
    (q, k, v), _ = draw(1, 2, 1, 9, 12, 16, device=device)
    offsets: tuple[Tensor | None, Tensor | None] = (None, None)
    if layout == "transposed":
        q, k, v = (x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k, v))
    if layout == "packed":
        q, k, v = (x.detach()[0].transpose(0, 1).requires_grad_() for x in (q, k, v))
        offsets = tuple(torch.tensor(ends, dtype=torch.int32, device=device) for ends in ([0, 4, 9], [0, 7, 12]))
    settings = (*offsets, 9, 12, True, 0.25, method, backend, False)
    torch.library.opcheck(torch.ops.gproj.forward.default, (q, k, v, *settings))
    saved = torch.ops.gproj.forward(q.detach(), k.detach(), v.detach(), *settings)
    torch.library.opcheck(
        torch.ops.gproj.backward.default,
        (torch.ones_like(q), q.detach(), k.detach(), v.detach(), *saved, *settings),
    )


@everywhere
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_as_one_graph(dynamic: bool, backend: str, device: str) -> None:
    def block(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q * 2, k, v, causal=True, method="zerosum", backend=backend) + 1

    compiled = torch.compile(block, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for seq in (9, 17):
        leaves, grad = draw(1, 2, 1, seq, seq, 16, device=device)
        assert all(
            torch.equal(a, b)
            for a, b in zip(computed(compiled, leaves, grad), computed(block, leaves, grad), strict=True)
        )


@everywhere
def test_checkpointed(backend: str, device: str) -> None:
    leaves, grad = draw(1, 2, 1, 9, 12, 16, device=device)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, backend=backend)

    def again(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        result: Tensor = checkpoint(plain, q, k, v, use_reentrant=False)
        return result

    assert all(
        torch.equal(a, b) for a, b in zip(computed(again, leaves, grad), computed(plain, leaves, grad), strict=True)
    )


@everywhere
def test_autocast_lowers_float32_as_torch_does(backend: str, device: str) -> None:
    leaves, grad = draw(1, 2, 1, 9, 12, 16, device=device)
    raised = [x.detach().float().requires_grad_() for x in leaves]
    wanted = computed(attention, leaves, grad, backend=backend)
    with torch.autocast(device, dtype=torch.bfloat16):
        got = computed(attention, raised, grad, backend=backend)
    assert [x.dtype for x in got] == [torch.bfloat16, *[torch.float32] * 3]
    assert all(torch.equal(a.to(b.dtype), b) for a, b in zip(got, wanted, strict=True))


def test_differentiable_once(device: str) -> None:
    leaves, _ = draw(1, 1, 1, 4, 4, 8, device=device)
    (dq,) = torch.autograd.grad(attention(*leaves).sum(), leaves[:1], create_graph=True)
    with pytest.raises(RuntimeError, match=r"backward through gproj\.backward"):
        torch.autograd.grad(dq.sum(), leaves)


def test_only_what_needs_a_gradient_gets_one(device: str) -> None:
    (q, k, v), grad = draw(1, 1, 1, 4, 4, 8, device=device)
    o = attention(q, k.detach(), v.detach())
    assert torch.equal(*(torch.autograd.grad(x, q, grad)[0] for x in (o, attention(q, k, v))))
    assert not attention(q.detach(), k.detach(), v.detach()).requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_backward_fills_nothing_for_what_only_it_reads(method: str, device: str) -> None:
    class Asked(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func)
            return func(*args, **kwargs or {})

    asked: list[Any] = []
    leaves, grad = draw(1, 1, 1, 4, 4, 8, device=device)
    o = attention(*leaves, method=method)
    with Asked():
        torch.autograd.grad(o, leaves, grad)
    assert torch.ops.gproj.backward.default in asked
    assert torch.ops.aten.zeros.default not in asked


def test_no_gradient_of_o_is_none_of_its_inputs(device: str) -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> None:
            return None

    leaves, grad = draw(1, 1, 1, 4, 4, 8, device=device)
    o: Tensor = Forgets.apply(attention(*leaves))  # type: ignore[no-untyped-call]
    assert torch.autograd.grad(o, leaves, grad, allow_unused=True) == (None, None, None)


def test_routed_sdpa(device: str) -> None:
    leaves, grad = draw(1, 4, 2, 12, 12, 16, device=device)

    def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)

    def routed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with routed_sdpa(method="zerosum"):
            return sdpa(q, k, v)

    wanted = computed(attention, leaves, grad, causal=True, softmax_scale=0.3, method="zerosum")
    assert all(torch.equal(a, b) for a, b in zip(computed(routed, leaves, grad), wanted, strict=True))
    assert not torch.equal(computed(sdpa, leaves, grad)[1], wanted[1])
    traced = torch.compile(routed, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(computed(traced, leaves, grad), wanted, strict=True))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"attn_mask": torch.ones(4, 6, dtype=torch.bool)}, "attn_mask"),
        ({"dropout_p": 0.1}, "dropout_p=0.1"),
        ({"is_causal": True}, "top left"),
    ],
)
def test_what_cannot_be_routed(settings: dict[str, object], problem: str) -> None:
    (q, k, v), _ = draw(1, 2, 2, 4, 6, 8)
    with routed_sdpa(), pytest.raises(UnsupportedInput, match=problem):
        scaled_dot_product_attention(q, k, v, **settings)
    torch.manual_seed(0)
    wanted = scaled_dot_product_attention(q, k, v, **settings)
    torch.manual_seed(0)
    with routed_sdpa(strict=False):
        assert torch.equal(scaled_dot_product_attention(q, k, v, **settings), wanted)


def test_float32_is_handed_back_or_refused() -> None:
    q = torch.randn(1, 2, 4, 8)
    with routed_sdpa(), pytest.raises(UnsupportedInput, match="bfloat16 or float16"):
        scaled_dot_product_attention(q, q, q)
    with routed_sdpa(strict=False):
        assert torch.equal(
            scaled_dot_product_attention(q, q, q), torch.nn.functional.scaled_dot_product_attention(q, q, q)
        )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"q": torch.zeros(1, 2, 4, 8, dtype=torch.bfloat16)}, "q must be (total, heads, head_dim)"),
        ({"cu_seqlens_q": torch.tensor([0, 4])}, "cu_seqlens_q must be an int32 tensor"),
        ({"cu_seqlens_k": torch.tensor([0, 2, 4], dtype=torch.int32)}, "as many sequences"),
        ({"cu_seqlens_q": torch.tensor([0, 4], dtype=torch.int32, device="meta")}, "contiguous on cpu"),
        ({"max_seqlen_k": -1}, "must not be negative"),
        ({"k": torch.zeros(4, 2, 16, dtype=torch.bfloat16)}, "k and v must have one shape"),
    ],
)
def test_packing_is_checked(changes: dict[str, object], problem: str) -> None:
    x, offsets = torch.zeros(4, 2, 8, dtype=torch.bfloat16), torch.tensor([0, 4], dtype=torch.int32)
    arguments = {
        "q": x,
        "k": x,
        "v": x,
        "cu_seqlens_q": offsets,
        "cu_seqlens_k": offsets,
        "max_seqlen_q": 4,
        "max_seqlen_k": 4,
    }
    with pytest.raises(UnsupportedInput) as caught:
        attention_varlen(**(arguments | changes))  # type: ignore[arg-type]
    assert problem in str(caught.value)
