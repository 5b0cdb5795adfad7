"""The shape of a generated history: its commits, backends, cases and metrics by name, and their values."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np

SUBJECTS = ("gproj", "zerosum")
ANCHOR = "fa3"
_PEERS = ("fa2", "fa4", "sdpa-math", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn", "flex", "fp32", "keycenter+fa3")
ACCURACY_METRICS = ("dq_error", "dk_error", "dv_error", "dq_error_worst", "dk_error_worst", "dv_error_worst")
TIMING_METRICS = (
    "forward_backward_ratio_anchor",
    "forward_backward_seconds",
    "backward_ratio_anchor",
    "backward_seconds",
    "forward_ratio_anchor",
    "forward_seconds",
)
CEILING = 0.0035
HARDWARE = "h200"
RULER = "package-f57f3d48baf31d0903aeba3a7d770525f2a51a6a"
FIRST_COMMIT = datetime(2026, 3, 1, tzinfo=UTC)
BETWEEN_COMMITS = timedelta(minutes=20)
_STEPS = 3.0  # changes of level of a series over the whole history, on average
_FAILING = 0.01  # share of commits that break the projection
_NOISE = {"fraction": 0.002, "ratio": 0.01, "seconds": 0.015}
_UNITS = {"error": "fraction", "worst": "fraction", "anchor": "ratio", "seconds": "seconds"}


@dataclass(frozen=True)
class Key:
    """What a series is of."""

    backend: str
    case: str
    metric: str

    @property
    def unit(self) -> str:
        """fraction, ratio or seconds."""
        return _UNITS[self.metric.rpartition("_")[2]]

    @property
    def revision(self) -> str:
        """Whose value it is: the head's of a subject, the ruler's of a peer and of the anchor."""
        return "head" if self.backend in SUBJECTS else "ruler"


@dataclass(frozen=True)
class Shape:
    """Sizes of a history. Half of the cases are input sets, which have errors; half are shapes, which have times.

    Args:
        commits: commits of the default branch and of pull requests, each with one job.
        backends: two subjects, the anchor and peers; at least 3.
        cases: input sets and shapes; at least 2.
        metrics: of each case, 1 to 6; every one of commits × backends × cases × metrics is one sample.
        slices: of each input set, in the newest `full_reports` reports.
        full_reports: how many of the newest reports are whole; older ones keep their facts alone, as their values
            stand in the samples and only the pages of a job and of a comparison read the rest.
        seed: of everything that is random.
    """

    commits: int = 60
    backends: int = 4
    cases: int = 4
    metrics: int = 2
    slices: int = 6
    full_reports: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where a size makes no history."""
        limits = {"commits": (2, 10**6), "backends": (3, 100), "cases": (2, 1000), "metrics": (1, 6), "slices": (1, 64)}
        for name, (low, high) in limits.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name}: give {low} to {high}, not {getattr(self, name)}")

    @property
    def samples(self) -> int:
        """How many samples there will be."""
        return self.commits * len(self.keys)

    @cached_property
    def backend_names(self) -> tuple[str, ...]:
        """Subjects first, then the anchor, then peers."""
        names = (*SUBJECTS, ANCHOR, *_PEERS)
        return (*names, *(f"peer-{number}" for number in range(len(names), self.backends)))[: self.backends]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the input sets."""
        named = ("late-keybias", "early-keybias", "early-rope")
        rest = (f"synthetic:offset?seq={128 * number}" for number in range(1, self.cases))
        return (*named, *rest)[: (self.cases + 1) // 2]

    @cached_property
    def shapes(self) -> tuple[str, ...]:
        """Names of the timed cases."""
        count = self.cases // 2
        return tuple(f"{1 + n % 4}x16x{512 * (1 + n // 4)}x{(64, 128)[n % 2]}.causal.bfloat16" for n in range(count))

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """Every series."""
        halves = ((self.inputs, ACCURACY_METRICS), (self.shapes, TIMING_METRICS))
        return tuple(
            Key(backend, case, metric)
            for cases, metrics in halves
            for backend in self.backend_names
            for case in cases
            for metric in metrics[: self.metrics]
        )

    def sha(self, commit: int) -> str:
        """SHA of a commit by its place, from 0."""
        return hashlib.sha1(f"{self.seed}/{commit}".encode(), usedforsecurity=False).hexdigest()

    def moment(self, commit: int) -> datetime:
        """When a commit was authored."""
        return FIRST_COMMIT + commit * BETWEEN_COMMITS

    def is_pull_request(self, commit: int) -> bool:
        """Whether a commit is the head of a pull request; the others are pushes to the default branch."""
        return commit % 10 == 9

    def base(self, commit: int) -> int | None:
        """The commit it is measured against: the one before it on the default branch."""
        before = commit - 1
        while before >= 0 and self.is_pull_request(before):
            before -= 1
        return before if before >= 0 else None


class Values:
    """The values of all series, commit by commit: levels that step now and then, with noise, and broken commits."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        random = np.random.default_rng([shape.seed, 1])
        self._level = np.array([_level(key, random) for key in shape.keys])
        self._noise = np.array([_NOISE[key.unit] for key in shape.keys])
        self._breaks = np.array([key.backend == SUBJECTS[0] and key.metric.startswith("dq_") for key in shape.keys])
        count = len(shape.keys)
        steps = random.integers(0, shape.commits, size=int(_STEPS * count))
        self._steps: dict[int, list[tuple[int, float]]] = {}
        for commit, series in zip(steps, random.integers(0, count, size=len(steps)), strict=True):
            self._steps.setdefault(int(commit), []).append((int(series), float(np.exp(random.normal(0, 0.08)))))
        self.broken = frozenset(np.flatnonzero(random.random(shape.commits) < _FAILING).tolist()) - {0}
        self._next = 0

    def of_next(self) -> np.ndarray:
        """The values at the next commit, in the order of the shape's keys, in the units of their metrics."""
        commit, self._next = self._next, self._next + 1
        for series, factor in self._steps.get(commit, ()):
            self._level[series] *= factor
        random = np.random.default_rng([self.shape.seed, 2, commit])
        values = self._level * np.exp(random.standard_normal(len(self._level)) * self._noise)
        if commit in self.broken:
            values[self._breaks] = np.minimum(values[self._breaks] * 40, 0.9)
        return values


def _level(key: Key, random: np.random.Generator) -> float:
    """Where a series begins: errors are log-normal, leaking peers worse on drifted inputs, ratios near 1."""
    if key.unit == "fraction":
        leaks = key.backend not in (*SUBJECTS, "fp32") and key.metric.startswith("dq_") and "key" in key.case
        middle = 0.2 if leaks else 0.0018
        return float(min(0.9, middle * np.exp(random.normal(0, 0.15)) * (1.6 if key.metric.endswith("_worst") else 1)))
    ratio = 1.0 if key.backend == ANCHOR else float(np.exp(random.normal(0.08, 0.2)))
    if key.unit == "ratio":
        return ratio
    batch, heads, length, width = (int(part) for part in key.case.partition(".")[0].split("x"))
    share = {"forward": 0.3, "backward": 0.7}.get(key.metric.removesuffix("_seconds"), 1.0)
    return ratio * share * 14 * batch * heads * math.pow(length, 2) * width / 4e14
