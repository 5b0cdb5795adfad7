"""A report with a value in every field of the contract."""

from typing import Any

SLICE = {
    "backend": "gproj",
    "revision": "head",
    "input": "late-keybias",
    "slice": "L1.b0.h0",
    "layer": "L1",
    "batch": 0,
    "head": 0,
    "tensor": "dq",
    "rel_err": 0.002,
    "scaled_abs_err": 0.001,
    "p999": 0.01,
    "cosine": 0.99,
    "reference_norm": 3.0,
    "nonfinite": 0,
    "vanishing": False,
    "p50": 0.001,
    "p90": 0.004,
    "p99": 0.008,
    "p100": 0.02,
    "norm_ratio": 1.01,
}
REPORT: dict[str, Any] = {
    "schema_version": 1,
    "created_at": "2026-01-02T03:04:05+00:00",
    "duration_seconds": 1.5,
    "working_seconds": 1.25,
    "seed": 0,
    "repro": "gprojci-suite bench",
    "ruler": {"version": "0.1.0", "revision": "package-0"},
    "subjects": [
        {
            "backend": "gproj",
            "revision": "head",
            "commit": "c",
            "build_key": "k",
            "entry": "gproj:attention",
            "build_seconds": 41.5,
        }
    ],
    "environment": {
        "device": "cpu",
        "device_name": "cpu",
        "hardware": "cpu-x86-64",
        "platform": "Linux",
        "python": "3.11",
        "torch": "2.13.0",
        "cuda": None,
        "driver": None,
        "cpu_count": 2,
        "threads": 2,
        "memory_bytes": 1,
        "packages": {"torch": "2.13.0"},
        "clocks": None,
        "throttle_reasons": [],
        "network": "isolated",
        "samples": [{"moment": "before", "clocks": {}, "throttle_reasons": ["sw_power_cap"], "foreign_processes": 0}],
    },
    "backends": [
        {
            "backend": "gproj",
            "revision": "head",
            "role": "subject",
            "status": "ok",
            "detail": None,
            "start_seconds": 2.5,
        },
        {
            "backend": "fa3",
            "revision": "ruler",
            "role": "peer",
            "status": "unsupported",
            "detail": "needs CUDA",
            "start_seconds": None,
        },
        {
            "backend": "sdpa-math",
            "revision": "ruler",
            "role": "anchor",
            "status": "ok",
            "detail": None,
            "start_seconds": 2.5,
        },
    ],
    "inputs": [
        {
            "input": "late-keybias",
            "content_hash": "sha256:00",
            "causal": True,
            "softmax_scale": 0.125,
            "dtype": "bfloat16",
            "layers": [{"layer": "L1", "batch": 1, "heads": 4, "kv_heads": 4, "seq_q": 8, "seq_k": 8, "head_dim": 64}],
            "statistics": [
                {"slice": "L1.b0.h0", "offset_spread": 33.0, "largest_logit": 5.0, "median_top_probability": 0.5}
            ],
            "provenance": {"step": "4000"},
        }
    ],
    "accuracy": {
        "slices": [SLICE],
        "summary": [
            {
                "backend": "gproj",
                "revision": "head",
                "input": "late-keybias",
                "tensor": "dq",
                "median": 0.002,
                "worst": 0.002,
                "worst_slice": "L1.b0.h0",
                "slices": 1,
                "vanishing": 0,
                "nonfinite": 0,
                "spread": None,
            }
        ],
    },
    "throughput": {
        "measurements": [
            {
                "backend": "gproj",
                "revision": "head",
                "case": "1x1x8x64.causal.bfloat16",
                "pass": "forward_backward",
                "seconds": [0.1, 0.2],
                "median_seconds": 0.15,
                "tflops": 12.0,
                "ceiling_share": 0.5,
                "peak_memory_bytes": 1000,
                "host_seconds": 0.001,
                "graph_seconds": None,
                "graph_detail": "forward cannot be captured: RuntimeError",
            }
        ],
        "comparisons": [
            {
                "backend": "gproj",
                "revision": "head",
                "against_backend": "sdpa-math",
                "against_revision": "ruler",
                "case": "1x1x8x64.causal.bfloat16",
                "pass": "forward_backward",
                "pairs": 2,
                "ratio": 1.1,
                "low": 1.0,
                "high": 1.2,
                "confidence": 0.95,
                "ratios": [1.0, 1.2],
                "control": False,
                "void_pairs": 0,
                "processes": 2,
            }
        ],
        "ceilings": {"matmul_tflops": 24.0, "copy_gb_s": 100.0},
        "kernels": [
            {
                "backend": "gproj",
                "revision": "head",
                "case": "1x1x8x64.causal.bfloat16",
                "pass": "backward",
                "kernel": "flash_bwd",
                "launches": 2,
                "seconds": 0.001,
                "registers_per_thread": 255,
                "shared_memory_bytes": 1024,
                "grid": [2, 39, 1],
                "block": [384, 1, 1],
                "spills": 4,
            }
        ],
        "clock": [
            {
                "backend": "gproj",
                "revision": "head",
                "case": "1x1x8x64.causal.bfloat16",
                "process": 1,
                "verdict": "unclear",
                "calls": 40,
                "requests": 6,
                "child_seconds": 0.00031,
                "ruler_seconds": 0.00052,
                "empties": 48,
                "empty_low": 0.0003,
                "empty_high": 0.0009,
                "check_seconds": 2.1,
            }
        ],
    },
    "surface": {
        "points": [
            {
                "backend": "gproj",
                "revision": "head",
                "ratio": 300.0,
                "logit_std": 16.0,
                "tensor": "dq",
                "median": 0.003,
                "worst": 0.004,
            }
        ]
    },
    "symmetry": {
        "responses": [
            {
                "backend": "gproj",
                "revision": "head",
                "case": "late-keybias",
                "slice": "L1.b0.h0",
                "response": "dq_key_shift",
                "value": 0.001,
                "vanishing": False,
            }
        ],
        "summary": [
            {
                "backend": "gproj",
                "revision": "head",
                "case": "late-keybias",
                "response": "dq_key_shift",
                "median": 0.001,
                "worst": 0.001,
                "worst_slice": "L1.b0.h0",
                "slices": 1,
                "vanishing": 0,
            }
        ],
    },
    "step": {
        "measurements": [
            {
                "backend": "gproj",
                "revision": "head",
                "model": "tiny",
                "seconds": [0.1, 0.2],
                "median_seconds": 0.15,
                "attention_share": 0.135,
                "peak_memory_bytes": None,
                "loss": 5.5,
            }
        ],
        "comparisons": [
            {
                "backend": "gproj",
                "revision": "head",
                "against_backend": "sdpa-math",
                "against_revision": "ruler",
                "case": "tiny",
                "pass": "step",
                "pairs": 2,
                "ratio": 1.1,
                "low": 1.0,
                "high": 1.2,
                "confidence": 0.95,
                "ratios": [1.0, 1.2],
                "control": False,
                "void_pairs": 1,
                "processes": 1,
            }
        ],
    },
    "determinism": [
        {
            "backend": "gproj",
            "revision": "head",
            "case": "late-keybias",
            "tensor": "dq",
            "deterministic_requested": False,
            "repeats": 5,
            "bitwise": False,
            "spread": 1e-4,
            "detail": None,
        }
    ],
}
