"""Kernels of a call: read from a trace as Kineto writes it, and from a real one where there is a GPU."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from gprojci_suite import kernel_profile
from gprojci_suite.child import Backend


def event(name: str, duration: float, **changes: Any) -> dict[str, Any]:
    """A kernel as `torch.profiler` exports it (https://github.com/pytorch/kineto, libkineto/src/CuptiActivity.cpp)."""
    arguments = {"External id": 36, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 4265}
    arguments |= {"registers per thread": 168, "shared memory": 188636, "blocks per SM": 1.0, "warps per SM": 12.0}
    arguments |= {"grid": [2, 39, 1], "block": [384, 1, 1], "est. achieved occupancy %": 0}
    entry = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 429685234108.312, "dur": duration}
    return entry | {"args": arguments | changes}


TRACE: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "regsPerMultiprocessor": 65536}],
    "traceEvents": [
        event("flash_fwd", 35.471),
        event("small", 1.5, **{"registers per thread": 16, "shared memory": 0}),
        event("small", 2.5, **{"registers per thread": 16, "shared memory": 0}),
        event("small", 5.0, **{"registers per thread": 16, "shared memory": 0, "grid": [1, 1, 1]}),
        {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 99.0, "args": {"bytes": 4}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 9.0, "args": {"cbid": 211}},
        {"ph": "s", "id": 4265, "pid": 0, "tid": 7, "ts": 1, "cat": "ac2g", "name": "ac2g"},
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "python"}},
    ],
    "traceName": "trace.json",
}


def test_kernels_of_a_trace() -> None:
    found = kernel_profile.kernels(TRACE, {("flash_fwd", 168): 4})
    assert [(item["kernel"], item["launches"]) for item in found] == [("flash_fwd", 1), ("small", 1), ("small", 2)]
    assert found[0] == {
        "kernel": "flash_fwd",
        "launches": 1,
        "seconds": pytest.approx(35.471e-6),
        "registers_per_thread": 168,
        "shared_memory_bytes": 188636,
        "grid": [2, 39, 1],
        "block": [384, 1, 1],
        "spills": 4,
    }
    assert found[2]["seconds"] == pytest.approx(4e-6)
    assert (found[2]["registers_per_thread"], found[2]["shared_memory_bytes"], found[2]["spills"]) == (16, 0, None)


def test_a_trace_without_facts_gives_none() -> None:
    bare = {"ph": "X", "cat": "kernel", "name": "k" * 5000, "dur": 1}
    (found,) = kernel_profile.kernels({"traceEvents": [bare]}, {})
    assert found["kernel"] == "k" * 200
    assert (found["registers_per_thread"], found["shared_memory_bytes"], found["grid"]) == (None, None, [])
    assert kernel_profile.kernels({}, {}) == []


def test_the_longest_kernels_are_kept() -> None:
    found = kernel_profile.kernels({"traceEvents": [event(f"k{n}", float(n)) for n in range(1, 100)]}, {})
    assert len(found) == kernel_profile.KERNELS_KEPT
    assert found[0]["kernel"] == "k99"


def test_spills_of_triton_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    class CompiledKernel:
        def __init__(self, name: str, registers: int, spills: int) -> None:
            self.name, self.n_regs, self.n_spills = name, registers, spills

    monkeypatch.delitem(sys.modules, "triton.compiler.compiler", raising=False)
    assert kernel_profile.triton_spills() == {}
    module = types.ModuleType("triton.compiler.compiler")
    module.CompiledKernel = CompiledKernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", module)
    alive = [CompiledKernel("fwd", 128, 0), CompiledKernel("bwd", 255, 12), CompiledKernel("bwd", 255, 12)]
    assert kernel_profile.triton_spills() == {("fwd", 128): 0, ("bwd", 255): 12}
    other = CompiledKernel("bwd", 255, 40)
    assert kernel_profile.triton_spills([*alive, other, "text"]) == {("fwd", 128): 0, ("bwd", 255): None}


def test_a_cpu_has_no_kernels() -> None:
    assert Backend().kernels({"file": "unused"}) == {"kernels": []}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_kernels_of_a_gpu(tmp_path: Path) -> None:
    q, k, v = (torch.randn(1, 4, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    path = tmp_path / "trace.json"
    found, o = kernel_profile.trace(
        torch, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), path
    )
    assert o.shape == q.shape
    assert not path.exists()
    kernels = kernel_profile.kernels(found, {})
    assert kernels
    assert all(16 <= item["registers_per_thread"] <= 255 for item in kernels)
    assert all(len(item["grid"]) == len(item["block"]) == 3 for item in kernels)
    assert 1e-6 < sum(item["seconds"] for item in kernels) < 1e-2
