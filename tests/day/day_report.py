"""Reports of the day: what the ruler would have found, with the noise of a session, by the commits under test."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import report_parts as parts
from day_history import Commit

from gprojci_suite.contract.report import Report

INPUT, CASE, ANCHOR = "late-keybias", "4x16x4096x128.causal.bfloat16", "fa3"
HARDWARE, RULER = "h200", "f" * 40
ANCHOR_SECONDS = 1.6e-3
NOISE = 0.003
"""Standard deviation of a time ratio and of an error from session to session, as a fraction."""
HALF_INTERVAL = 0.004
PAIRS = 20


def make(commits: Mapping[str, Commit], rng: random.Random, created_at: str, *, throttled: bool) -> dict[str, Any]:
    """The report of a session.

    Args:
        commits: `head`, and `base` where there is one.
        throttled: whether the GPU was slowed down all the time, so that no timing counts.
    """
    errors = {name: commit.kernel.dq_error * _noise(rng) for name, commit in commits.items()}
    report = {
        "schema_version": 1,
        "created_at": created_at,
        "duration_seconds": 240.0,
        "seed": 0,
        "repro": "gprojci-suite run spec.json report.json",
        "ruler": {"version": "0.1.0", "revision": RULER},
        "subjects": [
            {
                "backend": "gproj",
                "revision": name,
                "commit": commit.sha,
                "build_key": commit.sha[:16],
                "entry": "gproj:attention",
            }
            for name, commit in commits.items()
        ],
        "environment": _environment(throttled),
        "backends": [
            *(parts.backend("gproj", name, "subject") for name in commits),
            parts.backend(ANCHOR, "ruler", "anchor"),
        ],
        "inputs": [parts.input_set(INPUT)],
        "accuracy": parts.accuracy(INPUT, errors, spread=0.01),
        "throughput": {"measurements": [], "comparisons": []} if throttled else _throughput(commits, rng),
    }
    Report.from_json(report)
    return report


def _noise(rng: random.Random) -> float:
    return math.exp(rng.gauss(0, NOISE))


def _throughput(commits: Mapping[str, Commit], rng: random.Random) -> dict[str, Any]:
    over_anchor = {name: commit.kernel.over_anchor * _noise(rng) for name, commit in commits.items()}
    compared = [_comparison(name, (ANCHOR, "ruler"), ratio) for name, ratio in over_anchor.items()]
    if "base" in commits:
        exact = commits["head"].kernel.over_anchor / commits["base"].kernel.over_anchor
        compared.append(_comparison("head", ("gproj", "base"), exact * _noise(rng)))
    seconds = {("gproj", name): ANCHOR_SECONDS * ratio for name, ratio in over_anchor.items()}
    seconds[ANCHOR, "ruler"] = ANCHOR_SECONDS
    return {
        "measurements": [
            parts.measurement(backend, revision, CASE, value, PAIRS) for (backend, revision), value in seconds.items()
        ],
        "comparisons": compared,
    }


def _comparison(revision: str, against: tuple[str, str], ratio: float) -> dict[str, Any]:
    interval = (ratio * (1 - HALF_INTERVAL), ratio, ratio * (1 + HALF_INTERVAL))
    return parts.comparison(revision, against, CASE, interval, PAIRS)


def _environment(throttled: bool) -> dict[str, Any]:
    return {
        "device": "cuda",
        "device_name": "scripted, no GPU",
        "hardware": HARDWARE,
        "platform": "Linux",
        "python": "3.11.7",
        "torch": "2.13.0",
        "cuda": "13.0",
        "driver": "590.0",
        "cpu_count": 16,
        "threads": 16,
        "memory_bytes": 141 * 2**30,
        "packages": {"torch": "2.13.0"},
        "clocks": {"sm": 1980.0},
        "throttle_reasons": ["sw_power_cap"] if throttled else [],
        "network": "isolated",
    }
