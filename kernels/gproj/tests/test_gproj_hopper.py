"""The Hopper kernels: they compile anywhere, refuse what they do not compute, and on a GPU keep dQ and dK right."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gproj import UnsupportedInput, attention, explain
from gproj.hopper import support
from gproj.problem import Case
from gproj_oracle import computed, draw, error, exact
from gprojci_suite import inputs

pytest.importorskip("cutlass")
pytest.importorskip("triton")
on_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
)
METHODS = pytest.mark.parametrize("method", ["gproj", "zerosum"])
CASE = Case(
    device=torch.device("cuda"),
    dtype=torch.bfloat16,
    method="zerosum",
    causal=True,
    deterministic=False,
    varlen=False,
    batch=2,
    heads=4,
    kv_heads=2,
    seq_q=100,
    seq_k=100,
    head_dim=64,
    strides=((25600, 6400, 64, 1), (12800, 6400, 64, 1), (12800, 6400, 64, 1)),
)


@pytest.mark.parametrize(
    ("variants", "kernels"),
    [
        (["bfloat16,64,1,causal", "float16,128,4,full"], 8),
        (["float16,96,4,causal", "bfloat16,256,2,full"], 8),
        (["bfloat16,192,1,causal"], 5),
    ],
)
def test_compiles(variants: list[str], kernels: int) -> None:
    command = [sys.executable, str(Path(__file__).with_name("compile_hopper.py")), *variants]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    # Two of each pass, but of 192 and 256 columns three forwards, and of 256 one backward.
    assert len(done.stdout.splitlines()) == kernels


def test_refuses_a_cpu() -> None:
    x = torch.randn(1, 1, 8, 64, dtype=torch.bfloat16)
    with pytest.raises(UnsupportedInput, match=r"compute capability 9\.0"):
        attention(x, x, x, method="zerosum", backend="hopper")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (CASE, None),
        (replace(CASE, method="gproj"), None),
        (replace(CASE, method="gproj-dk"), 'not "gproj-dk"'),
        (replace(CASE, head_dim=80), "head_dim must be one of"),
        (replace(CASE, head_dim=256), None),
        (replace(CASE, varlen=True), "packed"),
        (replace(CASE, deterministic=True), None),
        (replace(CASE, deterministic=True, head_dim=256), "with deterministic=True head_dim must be one of"),
        (replace(CASE, seq_q=101), "101 queries on 100 keys"),
        (replace(CASE, seq_q=101, causal=False), None),
        (replace(CASE, seq_k=0, causal=False), "empty"),
        (replace(CASE, seq_k=2**22 + 1), "at most 4194304 keys"),
        (replace(CASE, strides=((25600, 6400, 1, 100), *CASE.strides[1:])), "rows of q must be contiguous"),
        (replace(CASE, strides=(CASE.strides[0], (12804, 6402, 64, 1), CASE.strides[2])), "rows of k"),
        (replace(CASE, strides=(CASE.strides[0], (12800, 0, 64, 1), CASE.strides[2])), "rows of k"),
        (replace(CASE, heads=1, kv_heads=1, strides=((6400, 1, 64, 1),) * 3), None),
    ],
)
def test_what_is_refused(monkeypatch: pytest.MonkeyPatch, case: Case, reason: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: (9, 0))
    found = support.supported(case)
    assert found is None if reason is None else reason in (found or "")


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: (9, 0))
    monkeypatch.setattr(support.metadata, "version", lambda _: "5.0")
    support._wrong_version.cache_clear()
    try:
        assert support.supported(CASE) == f"needs flash-attn-4 {support.VERSION} exactly, found 5.0"
    finally:
        support._wrong_version.cache_clear()


def in_float32(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float) -> Tensor:
    """Causal attention in float32, rounded at the end."""
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(k.shape[2] - q.shape[2] + 1)
    p = (q.float() @ k.float().mT * softmax_scale).masked_fill(hidden, -torch.inf).softmax(-1)
    return (p @ v.float()).to(q.dtype)


@on_hopper
@METHODS
@pytest.mark.parametrize("name", ["late-keybias", "early-keybias", "early-rope"])
def test_captured(name: str, method: str) -> None:
    made = inputs.load(name)
    for layer in made.layers.values():
        leaves = [x.cuda().requires_grad_() for x in (layer.q, layer.k, layer.v)]
        grad, scale = layer.do.cuda(), made.softmax_scale
        wanted = exact(leaves, grad, True, scale)
        got = computed(attention, leaves, grad, causal=True, softmax_scale=scale, method=method, backend="hopper")
        floor = computed(in_float32, leaves, grad, softmax_scale=scale)
        for place, tensor in enumerate(("o", "dq", "dk", "dv")):
            if method == "gproj" and tensor == "dk":
                continue  # The published method leaves it as it was.
            for head in range(leaves[0].shape[1]):
                ours, unrepaired = (error(x[place][0, head], wanted[place][0, head]) for x in (got, floor))
                assert ours <= max(0.0035, 1.05 * unrepaired), (tensor, head)


@on_hopper
@METHODS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "causal"),
    [
        (2, 4, 4, 1024, 1024, 64, True),
        (2, 4, 4, 1024, 1024, 128, True),
        (1, 3, 3, 1000, 1000, 64, True),
        (2, 4, 2, 513, 513, 128, True),
        (2, 8, 1, 300, 700, 64, True),
        (1, 2, 2, 640, 500, 128, False),
        (1, 2, 1, 77, 1300, 128, False),
        (1, 1, 1, 1, 200, 128, True),
        (2, 4, 4, 1024, 1024, 96, True),
        (1, 4, 2, 300, 700, 96, False),
        (2, 4, 4, 1024, 1024, 192, True),
        (1, 4, 1, 300, 700, 192, False),
        (2, 4, 4, 1024, 1024, 256, True),
        (1, 4, 2, 513, 513, 256, True),
        (1, 2, 2, 77, 1300, 256, False),
    ],
)
def test_drifted_keys(
    dtype: torch.dtype,
    batch: int,
    heads: int,
    kv_heads: int,
    seq_q: int,
    seq_k: int,
    head_dim: int,
    causal: bool,
    method: str,
) -> None:
    torch.manual_seed(0)
    q, grad = (torch.randn(batch, heads, seq_q, head_dim, device="cuda", dtype=dtype) for _ in range(2))
    k, v = (torch.randn(batch, kv_heads, seq_k, head_dim, device="cuda", dtype=dtype) for _ in range(2))
    leaves = [q.requires_grad_(), (k + 20 * torch.randn(head_dim, device="cuda", dtype=dtype)).requires_grad_(), v]
    v.requires_grad_()
    scale = head_dim**-0.5
    wanted = exact(leaves, grad, causal, scale)
    got = computed(attention, leaves, grad, causal=causal, softmax_scale=scale, method=method, backend="hopper")
    limit = 0.0045 if dtype is torch.bfloat16 else 0.0006
    # The published method does not repair dk.
    limits = {"dk": 4 * limit} if method == "gproj" else {}
    for name, mine, theirs in zip(("o", "dq", "dk", "dv"), got, wanted, strict=True):
        assert error(mine, theirs) <= limits.get(name, limit), name


@on_hopper
@METHODS
@pytest.mark.parametrize("head_dim", support.ORDERED_HEAD_DIMS)
@pytest.mark.parametrize(("kv_heads", "seq", "causal"), [(8, 2048, True), (2, 1000, True), (8, 1000, False)])
def test_deterministic(head_dim: int, kv_heads: int, seq: int, causal: bool, method: str) -> None:
    leaves, grad = draw(2, 8, kv_heads, seq, seq, head_dim, device="cuda")
    leaves[1] = (leaves[1] + 20).detach().requires_grad_()
    settings = {"causal": causal, "method": method, "backend": "hopper", "deterministic": True}
    first = computed(attention, leaves, grad, **settings)
    for _ in range(10):
        for name, mine, again in zip(
            ("o", "dq", "dk", "dv"), first, computed(attention, leaves, grad, **settings), strict=True
        ):
            assert torch.equal(mine, again), name
    wanted = exact(leaves, grad, causal, head_dim**-0.5)
    limits = {"dk": 0.018} if method == "gproj" else {}
    for name, mine, theirs in zip(("o", "dq", "dk", "dv"), first, wanted, strict=True):
        assert error(mine, theirs) <= limits.get(name, 0.0045), name


@on_hopper
@METHODS
def test_views_of_one_projection_and_a_graph(method: str) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(2, 256, 3, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, causal=True, method=method)

    def step(call: Callable[..., Tensor] = forward) -> Tensor:
        o = call(*(part.transpose(1, 2) for part in qkv.unbind(2)))
        return torch.autograd.grad(o, qkv, torch.ones_like(o))[0]

    assert explain(*(part.transpose(1, 2) for part in qkv.unbind(2)), causal=True, method=method).backend == "hopper"
    wanted = step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = step()
    replayed.zero_()
    graph.replay()
    torch.testing.assert_close(replayed, wanted, rtol=0.02, atol=0.02)
    torch.testing.assert_close(step(torch.compile(forward, fullgraph=True)), wanted, rtol=0.02, atol=0.02)
