"""The JSON of a generated history: suite reports in the contract's format, and the evidence of verdicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from shape import ANCHOR, CEILING, HARDWARE, RULER, SUBJECTS, Shape

from gprojci_suite.contract.report import Report

_PAIRS = 20
POLICY = {
    "dq_error_ceiling": CEILING,
    "dq_error_ratio": 1.05,
    "kernel_time_increase": 0.1,
    "kernel_overhead_ceiling": 1.0,
    "read_from": "base",
}
_INCREASE = 0.1


class Bodies:
    """Writes the reports of a history; `values` are a commit's, in the order of the shape's keys."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._place = {(key.backend, key.case, key.metric): place for place, key in enumerate(shape.keys)}
        judged = (key.metric for key in shape.keys if key.case in shape.inputs)
        self._tensors = tuple(dict.fromkeys(name.partition("_")[0] for name in judged))
        timed = (key.metric for key in shape.keys if key.case in shape.shapes)
        self._passes = tuple(
            dict.fromkeys(name.removesuffix("_seconds").removesuffix("_ratio_anchor") for name in timed)
        )

    def facts(self, commit: int) -> dict[str, Any]:
        """A report without measurements: what older reports keep."""
        shape, base = self.shape, self.shape.base(commit)
        revisions = {"head": shape.sha(commit)} | ({"base": shape.sha(base)} if base is not None else {})
        return {
            "schema_version": 1,
            "created_at": shape.moment(commit).isoformat(),
            "duration_seconds": 168.0,
            "seed": 0,
            "repro": f"gprojci-suite bench --backends gproj@{shape.sha(commit)[:8]} --device cuda",
            "ruler": {"version": "0.1.0", "revision": RULER},
            "subjects": [
                {"backend": name, "revision": revision, "commit": sha, "build_key": sha[:16], "entry": f"gproj:{name}"}
                for name in SUBJECTS
                for revision, sha in revisions.items()
            ],
            "environment": {
                "device": "cuda",
                "device_name": "NVIDIA H200",
                "hardware": HARDWARE,
                "platform": "Linux-6.18-x86_64-with-glibc2.39",
                "python": "3.12.3",
                "torch": "2.11.0+cu130",
                "cuda": "13.0",
                "driver": "580.159.04",
                "cpu_count": 16,
                "threads": 16,
                "memory_bytes": 150109880320,
                "packages": {"torch": "2.11.0", "numpy": "2.5.2", "triton": "3.6.0"},
                "clocks": {"clocks.sm": 1980.0, "clocks.mem": 3201.0},
                "throttle_reasons": [],
                "network": "isolated",
            },
            "backends": [
                {"backend": name, "revision": revision, "role": role, "status": "ok", "detail": None}
                for name, revision, role in self._columns(commit)
            ],
            "inputs": [],
            "accuracy": None,
            "throughput": None,
            "surface": None,
            "symmetry": None,
            "determinism": None,
        }

    def whole(self, commit: int, values: np.ndarray) -> dict[str, Any]:
        """A report with every slice and every pair, checked against the contract."""
        body = self.facts(commit)
        random = np.random.default_rng([self.shape.seed, 3, commit])
        body["inputs"] = [self.input(name) for name in self.shape.inputs]
        columns = self._columns(commit)
        accuracy = [
            self._accuracy(column, name, tensor, values, random)
            for column in columns
            for name in self.shape.inputs
            for tensor in self._tensors
        ]
        body["accuracy"] = {
            "slices": [entry for slices, _ in accuracy for entry in slices],
            "summary": [line for _, line in accuracy],
        }
        timed = [(column, case, part) for column in columns for case in self.shape.shapes for part in self._passes]
        body["throughput"] = {
            "measurements": [self._measurement(*entry, values, random) for entry in timed],
            "comparisons": [
                line
                for entry in timed
                for line in self._comparisons(*entry, values, random, against_base=self.shape.base(commit) is not None)
            ],
        }
        return Report.from_json(body).to_json()

    def evidence(self, commit: int, values: np.ndarray) -> list[dict[str, Any]]:
        """Rows of findings as the gate stores them, the failing ones first."""
        rows = [
            _finding("dq_error_ceiling", name, case, CEILING, float(values[self._place[name, case, "dq_error"]]))
            for name in SUBJECTS
            for case in self.shape.inputs
        ]
        if self.shape.base(commit) is not None:
            rows += [
                _finding("kernel_time_increase", name, case, _INCREASE, 0.004 * (1 + place % 3))
                for name in SUBJECTS
                for place, case in enumerate(self.shape.shapes)
            ]
        return sorted(rows, key=lambda row: row["verdict"] != "fail")

    def input(self, name: str) -> dict[str, Any]:
        """An entry of a report's `inputs`."""
        hard = 32.0 if "key" in name else 0.5
        return {
            "input": name,
            "content_hash": f"sha256:{hashlib.sha256(name.encode()).hexdigest()}",
            "causal": True,
            "softmax_scale": 0.125,
            "dtype": "bfloat16",
            "layers": [
                {"layer": "L1", "batch": 1, "heads": self.shape.slices, "kv_heads": self.shape.slices}
                | {"seq_q": 1024, "seq_k": 1024, "head_dim": 64}
            ],
            "statistics": [
                {"slice": f"L1.b0.h{head}", "offset_spread": hard / (1 + head)}
                | {"largest_logit": 40 * hard, "median_top_probability": 0.4}
                for head in range(self.shape.slices)
            ],
            "provenance": {"source": "generated"},
        }

    def _columns(self, commit: int) -> list[tuple[str, str, str]]:
        revisions = ("head",) if self.shape.base(commit) is None else ("head", "base")
        found = [(name, revision, "subject") for name in SUBJECTS for revision in revisions]
        others = self.shape.backend_names[len(SUBJECTS) :]
        return found + [(name, "ruler", "anchor" if name == ANCHOR else "peer") for name in others]

    def _value(self, values: np.ndarray, backend: str, case: str, metric: str, otherwise: float) -> float:
        place = self._place.get((backend, case, metric))
        return otherwise if place is None else float(values[place])

    def _accuracy(
        self, column: tuple[str, str, str], name: str, tensor: str, values: np.ndarray, random: np.random.Generator
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        backend, revision, _ = column
        middle = self._value(values, backend, name, f"{tensor}_error", 0.002)
        middle = 0.0019 if revision == "base" else middle
        errors = sorted(float(error) for error in middle * np.exp(random.normal(0, 0.2, self.shape.slices)))
        head = {"backend": backend, "revision": revision, "input": name}
        slices = [
            {**head, "slice": f"L1.b0.h{place}", "layer": "L1", "batch": 0, "head": place, "tensor": tensor}
            | {"rel_err": error, "scaled_abs_err": error / 10, "p999": error * 3, "cosine": 1 - error**2 / 2}
            | {"reference_norm": 2569.3, "nonfinite": 0, "vanishing": False}
            for place, error in enumerate(errors)
        ]
        line = {**head, "tensor": tensor, "median": middle, "worst": errors[-1]}
        line |= {"worst_slice": slices[-1]["slice"], "slices": len(slices), "vanishing": 0, "nonfinite": 0}
        return slices, line | {"spread": 0.0}

    def _measurement(
        self, column: tuple[str, str, str], case: str, part: str, values: np.ndarray, random: np.random.Generator
    ) -> dict[str, Any]:
        seconds = self._value(values, column[0], case, f"{part}_seconds", 0.002)
        measured = seconds * np.exp(random.normal(0, 0.01, _PAIRS))
        return {"backend": column[0], "revision": column[1], "case": case, "pass": part} | {
            "seconds": measured.tolist(),
            "median_seconds": float(np.median(measured)),
        }

    def _comparisons(
        self,
        column: tuple[str, str, str],
        case: str,
        part: str,
        values: np.ndarray,
        random: np.random.Generator,
        *,
        against_base: bool,
    ) -> Iterator[dict[str, Any]]:
        backend, revision, role = column
        if role != "anchor":
            ratio = self._value(values, backend, case, f"{part}_ratio_anchor", 1.1)
            yield _comparison(column, (ANCHOR, "ruler"), case, part, ratio, random)
        if role == "subject" and revision == "head" and against_base:
            yield _comparison(column, (backend, "base"), case, part, 1.002, random)


def _comparison(
    column: tuple[str, str, str],
    against: tuple[str, str],
    case: str,
    part: str,
    ratio: float,
    random: np.random.Generator,
) -> dict[str, Any]:
    ratios = ratio * np.exp(random.normal(0, 0.01, _PAIRS))
    return {
        "backend": column[0],
        "revision": column[1],
        "against_backend": against[0],
        "against_revision": against[1],
        "case": case,
        "pass": part,
        "pairs": _PAIRS,
        "ratio": ratio,
        "low": ratio * 0.995,
        "high": ratio * 1.005,
        "confidence": 0.95,
        "ratios": ratios.tolist(),
        "control": False,
    }


def _finding(key: str, backend: str, case: str, limit: float, value: float) -> dict[str, Any]:
    over = value > limit
    words = f"{backend} on {case}: {key} is {value:.5g}, {'over' if over else 'within'} the limit {limit:g}"
    return {
        "limit_key": key,
        "backend": backend,
        "verdict": "fail" if over else "pass",
        "message": words,
        "case": case,
        "slice": "L1.b0.h0" if key == "dq_error_ceiling" else None,
        "value": value,
        "limit": limit,
        "worst": value * 1.4 if key == "dq_error_ceiling" else None,
        "base": None,
        "low": None,
        "high": None,
        "required": True,
        "accepted": None,
    }


def text(value: Any) -> str:
    """JSON for a column."""
    return json.dumps(value, separators=(",", ":"))
