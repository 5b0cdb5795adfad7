"""Builds suite reports in the contract's format for the tests of the pages, and checks that they are such."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from gprojci_suite.contract.report import Report as SuiteReport

NASTY = '<script>alert("x")</script>'
INPUTS = {"late-keybias": 1.0, "early-rope": 0.0, "synthetic:offset": 0.6}
FA3 = {"dq": (44.8, 0.96, 0.28, 0.22), "dk": (0.45, 0.018, 0.014, 0.011)}
SUBJECTS = {"gproj": 1.22, "zerosum": 1.31}
PEERS = {"emulated-fa3": 1.12, "emulated-fa3-unfused": 1.14, "sdpa-flash": 0.31, "fp32": 1.02}
MANIFEST = """
[build]
path = "."
[backends.gproj]
entry = "gproj:attention"
[backends.zerosum]
entry = "gproj:zerosum_attention"
[accuracy]
inputs = ["late-keybias", "early-rope", "synthetic:offset"]
[throughput]
anchor = "sdpa-math"
[gate]
dq_error_ceiling = 0.0035
kernel_time_increase = 0.1
backends = ["gproj", "zerosum"]
"""


def errors_of(backend: str, tensor: str, input_name: str, broken: bool) -> tuple[float, ...]:
    """Relative errors of the four heads of a layer."""
    healthy = (0.0078, 0.0066, 0.0047, 0.0045) if tensor == "dq" else (0.0026, 0.0025, 0.0022, 0.0024)
    leaking = tuple(
        a ** INPUTS[input_name] * b ** (1 - INPUTS[input_name])
        for a, b in zip(FA3.get(tensor, (0.0017,) * 4), healthy, strict=True)
    )
    if backend == "fp32":
        return (0.0057, 5e-05, 2e-05, 1e-05) if tensor == "dq" else (0.0002, 1e-5, 1e-5, 1e-5)
    if backend == "sdpa-math" or tensor in ("o", "dv"):
        return (0.0017, 0.0017, 0.0016, 0.0018)
    if backend == "gproj" and tensor == "dk":
        return leaking
    if backend in SUBJECTS and not (backend == "gproj" and broken):
        return (0.0020, 0.0021, 0.0019, 0.0018)
    return leaking


def summary_of(values: list[dict[str, Any]]) -> dict[str, Any]:
    errors = sorted(item["rel_err"] for item in values)
    worst = max(values, key=lambda item: item["rel_err"])
    middle = len(errors) // 2
    return {
        **{key: values[0][key] for key in ("backend", "revision", "input", "tensor")},
        "median": (errors[middle - 1] + errors[middle]) / 2,
        "worst": worst["rel_err"],
        "worst_slice": worst["slice"],
        "slices": len(values),
        "vanishing": 0,
        "nonfinite": sum(item["nonfinite"] for item in values),
        "spread": 0.0,
    }


def invariants(columns: list[tuple[str, str, str]]) -> dict[str, Any]:
    """What the surface, symmetry, determinism and step suites would say of these backends."""
    named = [{"backend": name, "revision": revision} for name, revision, _ in columns]
    leaks = {"emulated-fa3", "emulated-fa3-unfused", "sdpa-flash"}
    points = [
        {**entry, "ratio": ratio, "logit_std": std, "tensor": tensor, "median": error, "worst": error * 2}
        for entry in named
        for ratio in (0.0, 300.0)
        for std in (1.0, 16.0)
        for tensor in ("dq", "dk")
        for error in [0.73 if entry["backend"] in leaks and ratio else 0.002]
    ]
    summary = [
        {
            **entry,
            "case": case,
            "response": response,
            "median": 0.73 if entry["backend"] in leaks and response == "dq_key_shift" else 0.0006,
            "worst": 0.9,
            "worst_slice": "L1.b0.h0",
            "slices": 8,
            "vanishing": 1,
        }
        for entry in named
        for case in ("late-keybias", "1x1x16384x64.causal.bfloat16")
        for response in ("dq_key_shift", "dk_row_sum")
    ]
    repeats = [
        {
            **entry,
            "case": "late-keybias",
            "tensor": tensor,
            "deterministic_requested": requested,
            "repeats": 0 if requested else 5,
            "bitwise": None if requested else tensor != "dq",
            "spread": None if requested else (0.0 if tensor != "dq" else 0.00012),
            "detail": f"takes no keyword deterministic {NASTY}" if requested else None,
        }
        for entry in named
        for requested in (False, True)
        for tensor in ("o", "dq")
    ]
    steps = [
        {
            **entry,
            "model": "tiny",
            "seconds": [0.2, 0.21],
            "median_seconds": 0.205,
            "attention_share": 0.18,
            "peak_memory_bytes": 3 * 2**30,
            "loss": 7.4807,
        }
        for entry in named
    ]
    compared = [
        {
            **entry,
            "against_backend": "sdpa-math",
            "against_revision": "ruler",
            "case": "tiny",
            "pass": "step",
            "pairs": 4,
            "ratio": 1.047,
            "low": 1.041,
            "high": 1.052,
            "confidence": 0.95,
            "ratios": [1.04, 1.05, 1.045, 1.05],
            "control": False,
            "void_pairs": 3,
        }
        for entry in named
        if entry["backend"] != "sdpa-math"
    ]
    return {
        "surface": {"points": points},
        "symmetry": {"responses": [], "summary": summary},
        "determinism": repeats,
        "step": {"measurements": steps, "comparisons": compared},
    }


def kernels(case: str) -> list[dict[str, Any]]:
    """What a profiler would have seen of one backend with spills, one of Triton without, one that is not Triton's."""
    backward = f"_backward_{NASTY}_" + "dkdv_" * 30
    seen = [
        ("gproj", "head", "forward", "_forward_kernel", 168, 0),
        ("gproj", "head", "backward", backward, 255, 36),
        ("gproj", "base", "forward", "_forward_kernel", 168, 0),
        ("gproj", "base", "backward", backward, 240, 4),
        ("gproj", "base", "backward", "_row_sums", 32, 0),
        ("zerosum", "head", "forward", "_forward_kernel", 160, 0),
        ("sdpa-math", "ruler", "forward", "void cutlass::Kernel2<cutlass_80_tensorop_bf16>\x1b[31m", None, None),
    ]
    return [
        {
            "backend": backend,
            "revision": revision,
            "case": case,
            "pass": part,
            "kernel": name[:200],
            "launches": 2,
            "seconds": 0.00125,
            "registers_per_thread": registers,
            "shared_memory_bytes": None if registers is None else 65536,
            "grid": [16, 64, 1] if registers else [],
            "block": [256, 1, 1] if registers else [],
            "spills": spills,
        }
        for backend, revision, part, name, registers, spills in seen
    ]


def report_of(head: str, base: str | None, *, broken: bool, base_broken: bool, drift: float = 1.0) -> dict[str, Any]:
    """A suite report in the contract's format, checked against it."""
    revisions = ["head", "base"] if base else ["head"]
    columns = [(name, revision, "subject") for name in SUBJECTS for revision in revisions]
    columns += [("sdpa-math", "ruler", "anchor"), *((name, "ruler", "peer") for name in PEERS)]
    slices = []
    for name, revision, _ in columns:
        for input_name in INPUTS:
            for layer in ("L1", "L3"):
                for tensor in ("dq", "dk", "dv", "o"):
                    wrong = broken if revision == "head" else base_broken
                    for place, error in enumerate(errors_of(name, tensor, input_name, wrong)):
                        softer = 0.4 if layer == "L3" and error > 0.01 else 1.0
                        slices.append(
                            {
                                "backend": name,
                                "revision": revision,
                                "input": input_name,
                                "slice": f"{layer}.b0.h{place}",
                                "layer": layer,
                                "batch": 0,
                                "head": place,
                                "tensor": tensor,
                                "rel_err": error * softer * drift,
                                "scaled_abs_err": error / 10,
                                "p999": error * 3,
                                "cosine": 1 / math.sqrt(1 + error**2),
                                "reference_norm": 0.01,
                                "nonfinite": 0,
                                "vanishing": False,
                            }
                        )
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for item in slices:
        groups.setdefault((item["backend"], item["revision"], item["input"], item["tensor"]), []).append(item)
    case = "1x4x1024x64.causal.bfloat16"
    speed = SUBJECTS | PEERS | {"sdpa-math": 1.0}

    def compared(
        name: str, revision: str, other: str, other_revision: str, ratio: float, control: bool = False
    ) -> dict[str, Any]:
        ratios = [ratio * (1 + 0.03 * math.sin(7.3 * place)) for place in range(20)]
        return {
            "backend": name,
            "revision": revision,
            "against_backend": other,
            "against_revision": other_revision,
            "case": case,
            "pass": "forward_backward",
            "pairs": 20,
            "ratio": ratio,
            "low": ratio * 0.985,
            "high": ratio * 1.015,
            "confidence": 0.95,
            "ratios": ratios,
            "control": control,
        }

    comparisons = [
        compared(
            name,
            revision,
            "sdpa-math",
            "ruler",
            speed[name] * (0.96 if broken and name == "gproj" else 1.0) * (drift if revision != "ruler" else 1.0),
        )
        for name, revision, role in columns
        if role != "anchor"
    ]
    if base:
        comparisons += [
            compared(name, "head", name, "base", 0.97 if broken and name == "gproj" else 1.004) for name in SUBJECTS
        ]
    comparisons.append(compared("gproj", "head", "gproj", "head", 1.001, control=True))
    body = {
        "schema_version": 1,
        "created_at": "2026-01-05T10:00:00+00:00",
        "duration_seconds": 41.2,
        "seed": 0,
        "repro": f"gprojci-suite bench --inputs late-keybias --backends gproj@{head[:8]} --device cpu",
        "ruler": {"version": "0.1.0", "revision": "package-3f9a1c77d2"},
        "subjects": [
            {
                "backend": name,
                "revision": revision,
                "commit": head if revision == "head" else base,
                "build_key": f"key-{revision}",
                "entry": f"gproj:{name}",
            }
            for name in SUBJECTS
            for revision in revisions
        ],
        "environment": {
            "device": "cpu",
            "device_name": "AMD EPYC 9654",
            "hardware": "cpu-x86-64",
            "platform": "Linux-6.8-x86_64",
            "python": "3.11.7",
            "torch": "2.13.0+cpu",
            "cuda": None,
            "driver": None,
            "cpu_count": 2,
            "threads": 2,
            "memory_bytes": 16 * 2**30,
            "packages": {"torch": "2.13.0", "numpy": "2.3.1"},
            "clocks": None,
            "throttle_reasons": [],
            "network": "isolated",
        },
        "backends": [
            *(
                {"backend": name, "revision": revision, "role": role, "status": "ok", "detail": None}
                for name, revision, role in columns
            ),
            {
                "backend": "fa3",
                "revision": "ruler",
                "role": "peer",
                "status": "unsupported",
                "detail": "needs an NVIDIA GPU of compute capability 9.0",
            },
        ],
        "inputs": [
            {
                "input": name,
                "content_hash": f"sha256:{index:064x}",
                "causal": True,
                "softmax_scale": 0.125,
                "dtype": "bfloat16",
                "layers": [
                    {
                        "layer": layer,
                        "batch": 1,
                        "heads": 4,
                        "kv_heads": 4,
                        "seq_q": 1024,
                        "seq_k": 1024,
                        "head_dim": 64,
                    }
                    for layer in ("L1", "L3")
                ],
                "statistics": [
                    {
                        "slice": f"{layer}.b0.h{place}",
                        "offset_spread": 0.4 + 37 * weight / (1 + place),
                        "largest_logit": 40 + 900 * weight,
                        "median_top_probability": 0.1 + 0.8 * weight / (1 + place),
                    }
                    for layer in ("L1", "L3")
                    for place in range(4)
                ],
                "provenance": {"source": "training run on an H200", "training_step": "4000" if weight == 1 else "200"},
            }
            for index, (name, weight) in enumerate(INPUTS.items())
        ],
        "accuracy": {"slices": slices, "summary": [summary_of(values) for values in groups.values()]},
        "throughput": {
            "measurements": [
                {
                    "backend": name,
                    "revision": revision,
                    "case": case,
                    "pass": part,
                    "seconds": [
                        0.004 * speed[name] * share * (1 + 0.02 * math.sin(3.1 * place)) for place in range(12)
                    ],
                    "median_seconds": 0.004 * speed[name] * share,
                }
                for name, revision, _ in columns
                for part, share in (("forward", 0.3), ("backward", 0.7))
            ],
            "comparisons": comparisons,
        },
    }
    if broken:
        body |= invariants(columns)
        body["environment"]["samples"] = [
            {"moment": moment, "clocks": {"clocks.sm": 1980.0}, "throttle_reasons": why, "foreign_processes": None}
            for moment, why in (("before", []), ("during", ["sw_power_cap"]))
        ]
        body["environment"] |= {
            "torch": "2.14.0+cpu",
            "packages": {"torch": "2.14.0", "numpy": "2.3.1", "triton": "3.6"},
        }
        body["throughput"]["ceilings"] = {"matmul_tflops": 742.0, "copy_gb_s": 4100.0}
        for entry in body["throughput"]["measurements"]:
            entry |= {"tflops": 311.0, "ceiling_share": 0.42, "peak_memory_bytes": 5 * 2**29, "host_seconds": 0.00031}
            if entry["pass"] == "backward":
                entry |= {"graph_seconds": 0.0029, "host_seconds": 0.031}
                if entry["backend"] == "zerosum":
                    entry |= {"graph_seconds": None, "graph_detail": f"capture failed: {NASTY}"}
        there = {(entry["backend"], entry["revision"]) for entry in body["backends"]}
        body["throughput"]["kernels"] = [
            entry for entry in kernels(case) if (entry["backend"], entry["revision"]) in there
        ]
        for entry in body["throughput"]["comparisons"]:
            entry["processes"] = 5
        for entry in body["subjects"]:
            entry["build_seconds"] = 41.2 if entry["revision"] == "head" else None
        for place, entry in enumerate(body["backends"][:3]):
            entry["start_seconds"] = 6.0 + place
    return SuiteReport.from_json(body).to_json()


def test_the_built_report_is_a_valid_report() -> None:
    report = report_of("a" * 40, "b" * 40, broken=True, base_broken=False)
    assert datetime.fromisoformat(report["created_at"]).tzinfo == UTC
    assert report["accuracy"]["slices"]
