"""Peers are found by listing names, agree with the reference wherever they say they can run, and never fall back."""

import subprocess
import sys

import pytest
import torch

from gprojci_suite import peers, reference

ANYWHERE = {
    "sdpa-math",
    "sdpa-flash",
    "fp32",
    "emulated-fa3",
    "emulated-fa3-unfused",
    "emulated-gproj",
    "emulated-zerosum",
}
GPU = {"fa2", "fa3", "fa4", "flex", "sdpa-cudnn", "sdpa-efficient"}
CASES = [
    peers.Case(1, 2, 2, 64, 64, 32, True, "bfloat16"),
    peers.Case(2, 4, 2, 300, 300, 16, True, "bfloat16"),
    peers.Case(1, 4, 1, 50, 90, 64, True, "bfloat16"),
    peers.Case(1, 2, 2, 90, 50, 64, True, "bfloat16"),
    peers.Case(1, 4, 2, 50, 90, 96, False, "bfloat16"),
    peers.Case(1, 2, 2, 33, 33, 64, True, "float16"),
    peers.Case(1, 1, 1, 1, 1, 64, True, "bfloat16"),
]


def test_names() -> None:
    assert set(peers.names()) == ANYWHERE | GPU
    with pytest.raises(peers.UnknownPeer, match="known: "):
        peers.get("fa9")


def test_listing_imports_no_peer_and_no_library() -> None:
    code = (
        "import sys; from gprojci_suite import peers; [peers.description(name) for name in peers.names()];"
        "print([m for m in sys.modules if m.startswith('gprojci_suite.peers.') or m.startswith('flash_attn')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(GPU))
def test_gpu_peers_say_why_they_cannot_run_here(name: str) -> None:
    reason = peers.get(name).supported(CASES[0], "cpu")
    assert reason is not None
    assert "CUDA" in reason


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", sorted(ANYWHERE))
def test_they_compute_attention(name: str, case: peers.Case) -> None:
    peer = peers.get(name)
    reason = peer.supported(case, "cpu")
    if reason is not None:
        assert name == "sdpa-flash"
        assert case.seq_q != case.seq_k
        return
    generator = torch.Generator().manual_seed(0)
    sizes = (
        (case.heads, case.seq_q),
        (case.kv_heads, case.seq_k),
        (case.kv_heads, case.seq_k),
        (case.heads, case.seq_q),
    )
    made = [
        torch.randn(case.batch, n, seq, case.head_dim, generator=generator).to(getattr(torch, case.dtype))
        for n, seq in sizes
    ]
    expected = reference.attention(*made, causal=case.causal, softmax_scale=0.2)
    dtype = getattr(peer, "INPUT_DTYPE", made[0].dtype)
    leaves = [x.to(dtype).requires_grad_() for x in made[:3]]
    o = peer.attention(*leaves, causal=case.causal, softmax_scale=0.2)
    gradients = torch.autograd.grad(o, leaves, made[3].to(dtype))
    limit = 1e-5 if name == "fp32" else 6e-3
    for got, wanted in zip((o, *gradients), (expected.o, expected.dq, expected.dk, expected.dv), strict=True):
        assert got.shape == wanted.shape
        assert got.dtype == dtype
        assert float((got.detach().double() - wanted).norm()) <= limit * float(wanted.norm()) + 1e-6
