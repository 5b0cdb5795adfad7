"""The parts of a small report that fits the contract: one subject on a CPU, one input set, one slice of dQ."""

from __future__ import annotations

from typing import Any


def backend(name: str, revision: str, role: str) -> dict[str, Any]:
    """A backend that has run."""
    return {"backend": name, "revision": revision, "role": role, "status": "ok", "detail": None}


def environment(hardware: str) -> dict[str, Any]:
    """A CPU's, of that hardware class."""
    machine = {"device": "cpu", "device_name": "a CPU", "hardware": hardware, "platform": "Linux", "python": "3.11.7"}
    machine |= {"torch": "2.13.0", "cuda": None, "driver": None, "cpu_count": 2, "threads": 2, "memory_bytes": 2**34}
    return machine | {"packages": {}, "clocks": None, "throttle_reasons": [], "network": "isolated"}


def input_set(name: str) -> dict[str, Any]:
    """An input set of one slice."""
    layer = {"layer": "L1", "batch": 1, "heads": 1, "kv_heads": 1, "seq_q": 8, "seq_k": 8, "head_dim": 64}
    statistics = {"slice": "L1.b0.h0", "offset_spread": 1.0, "largest_logit": 2.0, "median_top_probability": 0.5}
    return {
        "input": name,
        "content_hash": "sha256:" + "0" * 64,
        "causal": True,
        "softmax_scale": 0.125,
        "dtype": "bfloat16",
        "layers": [layer],
        "statistics": [statistics],
        "provenance": {"step": "4000"},
    }


def accuracy(name: str, errors: dict[str, float], *, spread: float, subject: str = "gproj") -> dict[str, Any]:
    """Errors of the subject's dQ on an input set by revision; `spread` is that from run to run."""
    about = [({"backend": subject, "revision": revision, "input": name}, error) for revision, error in errors.items()]
    return {
        "slices": [_slice(one, error) for one, error in about],
        "summary": [_summary(one, error, spread) for one, error in about],
    }


def _slice(about: dict[str, str], error: float) -> dict[str, Any]:
    place = {"slice": "L1.b0.h0", "layer": "L1", "batch": 0, "head": 0}
    errors = {"rel_err": error, "scaled_abs_err": error, "p999": error, "cosine": 1.0, "reference_norm": 1.0}
    return {**about, **place, **errors, "tensor": "dq", "nonfinite": 0, "vanishing": False}


def _summary(about: dict[str, str], error: float, spread: float) -> dict[str, Any]:
    errors = {"median": error, "worst": error, "worst_slice": "L1.b0.h0", "spread": spread}
    return {**about, **errors, "tensor": "dq", "slices": 1, "vanishing": 0, "nonfinite": 0}


def measurement(name: str, revision: str, case: str, seconds: float, times: int) -> dict[str, Any]:
    """A backend's times of forward and backward, all the same."""
    about = {"backend": name, "revision": revision, "case": case, "pass": "forward_backward"}
    return {**about, "seconds": [seconds] * times, "median_seconds": seconds}


def comparison(
    revision: str, against: tuple[str, str], case: str, interval: tuple[float, float, float], pairs: int
) -> dict[str, Any]:
    """gproj's time over another's (backend and revision), all pairs alike; `interval` is low, ratio, high."""
    low, ratio, high = interval
    return {
        "backend": "gproj",
        "revision": revision,
        "against_backend": against[0],
        "against_revision": against[1],
        "case": case,
        "pass": "forward_backward",
        "pairs": pairs,
        "ratio": ratio,
        "low": low,
        "high": high,
        "confidence": 0.95,
        "ratios": [ratio] * pairs,
        "control": False,
    }
