"""A small training report that fits the contract: two backends, two seeds, drifting keys. No run ever printed it."""

from __future__ import annotations

import math

from gprojci_suite.contract.report import Ruler
from gprojci_suite.contract.training import (
    KIND,
    Curve,
    LayerSeries,
    TrainingCapture,
    TrainingData,
    TrainingModel,
    TrainingOptimizer,
    TrainingReport,
    TrainingRun,
    TrainingSetup,
)

STEPS = 40
EVERY = 10


def run(backend: str, seed: int, growth: float, *, layers: int = 2) -> TrainingRun:
    """One completed run whose dq error grows by `growth` at each measurement."""
    steps = tuple(range(2, STEPS + 1, 2))
    measured = tuple(range(EVERY, STEPS + 1, EVERY))
    loss = tuple(5.5 * math.exp(-step / 30) + 0.01 * seed for step in steps)
    series = tuple(
        LayerSeries(
            layer=layer,
            gradient_norm=(0.5,) * len(measured),
            gradient_norm_q=(0.1,) * len(measured),
            gradient_norm_k=(0.2,) * len(measured),
            gradient_norm_v=(0.3,) * len(measured),
            key_offset_median=tuple(1.0 + 0.1 * step for step in measured),
            key_offset_worst=tuple(1.0 + 0.5 * step for step in measured),
            largest_logit=tuple(3.0 * step for step in measured),
            top_probability=(0.1,) * len(measured),
            dq_error_median=tuple(0.001 * growth**i for i in range(len(measured))),
            dq_error_worst=tuple(0.002 * growth**i for i in range(len(measured))),
            dq_worst_head=(0,) * len(measured),
            dk_error_median=(0.002,) * len(measured),
            dk_error_worst=(0.004,) * len(measured),
            row_sum_leak=tuple(0.001 * growth**i for i in range(len(measured))),
            symmetry_response=tuple(0.002 * growth**i for i in range(len(measured))),
        )
        for layer in range(layers)
    )
    last = series[0].dq_error_worst[-1]  # type: ignore[index]
    captured = (TrainingCapture(f"{backend}-seed{seed}-L0.safetensors", "sha256:" + "0" * 64, STEPS, 0, last),)
    return TrainingRun(
        backend=backend,
        seed=seed,
        status="completed",
        detail=None,
        steps=STEPS,
        seconds=2.0,
        side_by_side=1,
        initial_weights=f"sha256:{seed:064x}",
        final_loss=sum(loss[-5:]) / 5,
        final_steps=10,
        largest_gradient_norm=1.5,
        step_seconds=0.05,
        curve=Curve(steps, loss, (1.5,) * len(steps), (0.05,) * len(steps)),
        measured_steps=measured,
        layers=series,
        captures=captured if last > 0.1 else (),
        alarm_step=STEPS if last > 0.1 else None,
    )


def setup(steps: int = STEPS, layers: int = 2) -> TrainingSetup:
    """The setup of these runs."""
    model = TrainingModel(layers, 64, 2, 64, "learned", ("q", "k", "v"), parameters=132_000)
    data = TrainingData("library", "sha256:" + "1" * 64, 2, 1_000_000)
    return TrainingSetup(model, data, TrainingOptimizer(0.02, 0.003), steps, EVERY, 0.1)


def report(runs: tuple[TrainingRun, ...] | None = None, name: str = "keybias") -> TrainingReport:
    """The report; runs of emulated-fa3, whose dq error grows, and of fp32, whose does not, unless others are given."""
    if runs is None:
        both = (("emulated-fa3", 8.0), ("fp32", 1.0))
        runs = tuple(run(backend, seed, growth) for backend, growth in both for seed in (0, 1))
    return TrainingReport(
        kind=KIND,
        name=name,
        created_at="2026-11-30T09:00:00+00:00",
        repro="gprojci-suite train keybias --backends emulated-fa3,fp32 --seeds 0,1",
        ruler=Ruler("0.1.0", "package-0"),
        environment=None,
        setup=setup(),
        runs=runs,
    )
