"""Peers are found by listing names, agree with the reference wherever they say they can run, and never fall back."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gprojci_suite import flash_attn_build, inputs, peers, reference
from gprojci_suite.peers import fa3
from gprojci_suite.peers.preprocessing import keycenter_exact

ANYWHERE = {
    "sdpa-math",
    "sdpa-flash",
    "fp32",
    "fp32-fast",
    "emulated-fa3",
    "emulated-fa3-unfused",
    "emulated-gproj",
    "emulated-zerosum",
}
GPU = {"fa2", "fa2-unfused", "fa3", "fa4", "flex", "fp32-tf32", "sdpa-cudnn", "sdpa-efficient"}
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
        "[peers.check(f'{before}+{name}') for before in peers.preprocessing_names() for name in peers.names()];"
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
@pytest.mark.parametrize("name", [*sorted(ANYWHERE), "keycenter+sdpa-math", "keycenter-exact+emulated-fa3"])
def test_they_compute_attention(name: str, case: peers.Case) -> None:
    peer = peers.get(name)
    reason = peer.supported(case, "cpu")
    if reason is not None:
        assert name == "sdpa-flash"
        assert case.seq_q != case.seq_k
        return
    check_against_reference(name, case, "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", [*sorted(ANYWHERE | GPU), "keycenter-exact+sdpa-flash"])
def test_they_compute_attention_on_a_gpu_or_say_why_not(name: str, case: peers.Case) -> None:
    reason = peers.get(name).supported(case, "cuda")
    if reason is not None:
        assert name not in {"fp32", "fp32-fast", "sdpa-math"}
        assert "\n" not in reason
        print(f"{name}: {reason}")
        return
    check_against_reference(name, case, "cuda")


def check_against_reference(name: str, case: peers.Case, device: str) -> None:
    """Compute the case with standard normal tensors and compare o, dq, dk and dv with float64."""
    peer = peers.get(name)
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
    dtype = getattr(peer, "INPUT_DTYPE", None) or made[0].dtype
    leaves = [x.to(device, dtype).requires_grad_() for x in made[:3]]
    o = peer.attention(*leaves, causal=case.causal, softmax_scale=0.2)
    gradients = torch.autograd.grad(o, leaves, made[3].to(device, dtype))
    # TF32 has ten bits of mantissa where it is not compensated.
    limit = {"fp32": 1e-5, "fp32-tf32": 1e-3}.get(name, 6e-3)
    for got, wanted in zip((o, *gradients), (expected.o, expected.dq, expected.dk, expected.dv), strict=True):
        assert got.shape == wanted.shape
        assert got.dtype == dtype
        assert float((got.detach().cpu().double() - wanted).norm()) <= limit * float(wanted.norm()) + 1e-6


@pytest.mark.parametrize("name", ["emulated-fa3", "emulated-fa3-unfused"])
def test_the_probe_tells_a_fused_exponent_from_an_unfused_one(name: str) -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return peers.get(name).attention(q, k, v, causal=False, softmax_scale=0.125)

    assert flash_attn_build.unfused(attention, "cpu") is (name == "emulated-fa3-unfused")


@pytest.mark.parametrize("found_unfused", [False, True])
def test_fa2_is_only_what_it_was_built_as(found_unfused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_attn_build, "refusal", lambda case, device: None)
    monkeypatch.setattr(flash_attn_build, "unfused", lambda attention, device: found_unfused)
    reasons = {name: peers.get(name).supported(CASES[0], "cuda") for name in ("fa2", "fa2-unfused")}
    wrong = "fa2" if found_unfused else "fa2-unfused"
    assert [name for name, reason in reasons.items() if reason is not None] == [wrong]
    assert "UNFUSE_FMA" in str(reasons[wrong])


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose GPU is a Hopper, for what is asked before anything runs on it."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(fa3.importlib.util, "find_spec", lambda name: None)
    for name in (fa3.LIBRARY_VARIABLE, fa3.CUDART_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("hopper")
def test_fa3_takes_the_library_that_a_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[0]
    assert fa3.LIBRARY_VARIABLE in str(fa3.supported(case, "cuda"))
    monkeypatch.setenv(fa3.LIBRARY_VARIABLE, str(tmp_path / "absent.so"))
    assert "which is not a file" in str(fa3.supported(case, "cuda"))
    library = tmp_path / "fa3.so"
    library.write_bytes(b"no library")
    monkeypatch.setenv(fa3.LIBRARY_VARIABLE, str(library))
    assert fa3.supported(case, "cuda") is None
    monkeypatch.setenv(fa3.CUDART_VARIABLE, str(tmp_path / "absent.so"))
    assert fa3.CUDART_VARIABLE in str(fa3.supported(case, "cuda"))
    monkeypatch.delenv(fa3.CUDART_VARIABLE)
    x = torch.zeros(1, 1, 8, 8)
    with pytest.raises(OSError, match=fa3.CUDART):
        fa3.attention(x, x, x, causal=True, softmax_scale=1.0)


@pytest.mark.usefixtures("hopper")
def test_fa3_finds_the_library_inside_xformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "xformers" / "flash_attn_3").mkdir(parents=True)
    (tmp_path / "xformers" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "xformers" / "flash_attn_3" / "_C.so").write_bytes(b"")
    spec = importlib_spec(tmp_path / "xformers")
    monkeypatch.setattr(fa3.importlib.util, "find_spec", lambda name: spec if name == "xformers" else None)
    assert fa3.supported(CASES[0], "cuda") is None
    assert fa3._library() == tmp_path / "xformers" / "flash_attn_3" / "_C.so"


def importlib_spec(folder: Path) -> object:
    """The spec of a package in `folder`, which is not imported."""
    from importlib.machinery import ModuleSpec

    spec = ModuleSpec(folder.name, None, is_package=True)
    assert spec.submodule_search_locations is not None
    spec.submodule_search_locations.append(str(folder))
    return spec


@pytest.mark.parametrize("name", ["fa2", "fa2-unfused", "fa3", "fa4", "keycenter+fa3"])
def test_the_flash_attention_libraries_can_be_asked_for_determinism(name: str) -> None:
    assert "deterministic" in inspect.signature(peers.get(name).attention).parameters
    assert "deterministic" not in inspect.signature(peers.get("keycenter+sdpa-flash").attention).parameters


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("keycenter", r"keycenter\+PEER"),
        ("keycenter+fa9", "no such peer"),
        ("center+sdpa-math", "nothing called 'center'"),
        ("keycenter+keycenter-exact+sdpa-math", "nothing called"),
        ("+sdpa-math", "nothing called"),
        ("preprocessing", "no such peer"),
    ],
)
def test_names_of_preprocessed_peers(name: str, problem: str) -> None:
    with pytest.raises(peers.UnknownPeer, match=problem):
        peers.check(name)


def test_a_preprocessed_peer_says_what_the_peer_below_says() -> None:
    for before in peers.preprocessing_names():
        assert peers.description(before)
        assert "CUDA" in str(peers.get(f"{before}+fa3").supported(CASES[0], "cpu"))
        assert getattr(peers.get(f"{before}+fp32"), "INPUT_DTYPE", None) == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sign", [1, -1])
def test_exact_centring_is_exact(dtype: torch.dtype, sign: int) -> None:
    generator = torch.Generator().manual_seed(0)
    k = torch.randn(2, 3, 200, 16, generator=generator)
    k[..., :8] += sign * 30  # far from zero; the other dimensions have both signs
    k[..., 7] = sign * torch.rand(2, 3, 200, generator=generator).clamp_min(0.01)  # one sign, too wide for any constant
    k = k.to(dtype)
    moved = keycenter_exact.keys(k)
    shift = k.double() - moved.double()
    assert bool((shift == shift[:, :, :1]).all()), "every key moved by the same vector, without rounding"
    assert bool((shift[..., :7] != 0).all())
    assert bool((shift[..., 7:] == 0).all())
    assert float(moved[..., :7].double().mean().abs()) < 1


def test_exact_centring_takes_the_widest_interval_that_is_exact() -> None:
    k = torch.tensor([1.0, 4.0, 4.0, 4.0]).to(torch.bfloat16).view(1, 1, 4, 1)
    assert keycenter_exact.keys(k).flatten().tolist() == [-1.0, 2.0, 2.0, 2.0]
    k = torch.tensor([1.0, 4.03125]).to(torch.bfloat16).view(1, 1, 2, 1)
    assert torch.equal(keycenter_exact.keys(k), k)


def test_exact_centring_changes_no_logit_of_the_captured_keys() -> None:
    k = inputs.load("late-keybias").layers["L1"].k
    shift = k.double() - keycenter_exact.keys(k).double()
    assert bool((shift == shift[:, :, :1]).all())
    assert bool((shift[:, :, 0] != 0).any())
