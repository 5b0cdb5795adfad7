"""Which backend a call takes: said before, never changed behind a caller's back, imported only when taken."""

import subprocess
import sys

import pytest
import torch

from gproj import UnsupportedInput, attention, backends, explain
from gproj.problem import Case
from gproj_oracle import draw


def test_import_needs_no_backend() -> None:
    code = "import sys, gproj; print([name for name in ('triton', 'cutlass', 'flash_attn') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_on_a_cpu_auto_is_the_reference() -> None:
    leaves, _ = draw(1, 2, 2, 8, 8, 8)
    explanation = explain(*leaves)
    assert explanation.backend == "reference"
    assert explanation.reasons == {"hopper": "on cpu it must be named", "triton": "on cpu it must be named"}
    assert str(explanation).splitlines()[0] == "reference: taken"


def case(**changes: object) -> Case:
    settings = {
        "device": torch.device("cuda"),
        "dtype": torch.bfloat16,
        "method": "gproj",
        "causal": True,
        "deterministic": False,
        "varlen": False,
        "batch": 1,
        "heads": 2,
        "kv_heads": 1,
        "seq_q": 8,
        "seq_k": 8,
        "head_dim": 64,
        "strides": ((1024, 512, 64, 1),) * 3,
    }
    return Case(**(settings | changes))  # type: ignore[arg-type]


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What each backend answers; a test fills it in."""
    answers: dict[str, str] = {}
    monkeypatch.setattr(backends, "_refusal", lambda backend, case: answers.get(backend.name))
    backends.chosen_module.cache_clear()
    yield answers
    backends.chosen_module.cache_clear()


def test_auto_takes_the_first_that_computes_it(refusals: dict[str, str]) -> None:
    assert backends.explained(case(), "auto").reasons == {
        "triton": "hopper comes first",
        "reference": "hopper comes first",
    }
    refusals["hopper"] = "needs compute capability 9.0"
    explanation = backends.explained(case(), "auto")
    assert explanation.backend == "triton"
    assert explanation.reasons["hopper"] == "needs compute capability 9.0"


def test_auto_says_when_a_gpu_gets_the_slow_reference(refusals: dict[str, str]) -> None:
    refusals.update(hopper="no CuTe", triton="head_dim must be a multiple of 8")
    with pytest.warns(UserWarning, match="slow plain PyTorch(?s:.*)triton: head_dim must be a multiple of 8"):
        assert backends.chosen_module(case(), "auto").__name__ == "gproj.reference"


def test_a_named_backend_never_falls_back(refusals: dict[str, str]) -> None:
    refusals["hopper"] = "the package cutlass is not installed"
    with pytest.raises(UnsupportedInput, match="backend 'hopper' does not compute this: the package cutlass is not"):
        backends.chosen_module(case(), "hopper")


@pytest.mark.parametrize(("name", "value"), [("backend", "fast"), ("method", "exact")])
def test_unknown_names_list_the_known_ones(name: str, value: str) -> None:
    leaves, _ = draw(1, 2, 2, 8, 8, 8)
    with pytest.raises(UnsupportedInput, match=f"{name} must be one of .*, got '{value}'"):
        attention(*leaves, **{name: value})


def test_what_triton_does_not_compute(device: str) -> None:
    pytest.importorskip("triton")
    leaves, _ = draw(1, 2, 2, 8, 8, 12, device=device)
    with pytest.raises(UnsupportedInput, match="head_dim must be a multiple of 8 up to 256, got 12"):
        attention(*leaves, backend="triton")
    leaves, _ = draw(1, 2, 2, 8, 8, 264, device=device)
    with pytest.raises(UnsupportedInput, match="got 264"):
        explain(*leaves, backend="triton")


def test_a_missing_or_old_package_is_named() -> None:
    backend = backends.Backend("other", "gproj.reference", ("a_package_nobody_has",), frozenset({"cuda"}))
    assert backends._refusal(backend, case()) == "the package a_package_nobody_has is not installed"
    backend = backends.Backend("other", "gproj.reference", ("torch>=99.1",), frozenset({"cuda"}))
    assert backends._refusal(backend, case()) == f"needs torch>=99.1, installed is {torch.__version__}"
    backend = backends.Backend("other", "gproj.nowhere", (), frozenset({"cuda"}))
    assert backends._refusal(backend, case()) == "gproj.nowhere is not part of this installation"
