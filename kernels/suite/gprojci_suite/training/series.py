"""What a run has been through, step by step, and its bounded columns for the report."""

import math
import statistics
from dataclasses import dataclass, field, fields
from typing import Any

from gprojci_suite.contract.training import MAX_MEASURED, MAX_POINTS, Curve, LayerSeries, TrainingCapture
from gprojci_suite.training.measurement import Columns

DIGITS = 6
FINAL_STEPS = 100


@dataclass
class Series:
    """One value per step in `losses`, `norms` and `seconds` (NaN for a step that was measured or not timed)."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    measured: list[tuple[int, dict[int, Columns]]] = field(default_factory=list)
    captures: list[TrainingCapture] = field(default_factory=list)
    alarm_step: int | None = None
    revisions: list[str] = field(default_factory=list)
    elapsed: float = 0.0
    side_by_side: int = 1

    def state(self) -> dict[str, Any]:
        """Plain values, as a checkpoint holds them."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        return plain | {"captures": [vars(capture) for capture in self.captures]}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "Series":
        """The series of a checkpoint."""
        return cls(**(state | {"captures": [TrainingCapture(**capture) for capture in state["captures"]]}))

    def computed_by(self, revision: str | None) -> None:
        """Note the revision of the backend that takes the next steps, beside another one that took those before."""
        if revision is not None and revision not in self.revisions:
            self.revisions.append(revision)

    def end_with_losses(self) -> None:
        """Forget what was measured of steps whose losses have not come."""
        taken = len(self.losses)
        self.measured = [entry for entry in self.measured if entry[0] <= taken]
        self.captures = [capture for capture in self.captures if capture.step <= taken]
        if self.alarm_step is not None and self.alarm_step > taken:
            self.alarm_step = None

    def final_loss(self) -> tuple[float | None, int]:
        """Mean loss of the last steps, and how many they are."""
        last = self.losses[-FINAL_STEPS:]
        return (_rounded(statistics.fmean(last)) if last else None), len(last)

    def step_seconds(self) -> float | None:
        """Median time of a timed step; None where the device was shared, or nothing was timed."""
        timed = [value for value in self.seconds if not math.isnan(value)]
        return _rounded(statistics.median(timed)) if timed and self.side_by_side == 1 else None

    def curve(self, planned: int) -> Curve:
        """At most MAX_POINTS points for `planned` steps: means of the loss, largest norms, means of the times."""
        width, taken = math.ceil(planned / MAX_POINTS), len(self.losses)
        spans = [slice(begin, min(begin + width, taken)) for begin in range(0, taken, width)]
        timed = self.side_by_side == 1
        return Curve(
            steps=tuple(span.stop for span in spans),
            loss=tuple(_rounded(statistics.fmean(self.losses[span])) for span in spans),
            gradient_norm=tuple(_rounded(_largest(self.norms[span])) for span in spans),
            step_seconds=tuple(_rounded(_mean(self.seconds[span])) for span in spans) if timed else None,
        )

    def layers(self) -> tuple[tuple[int, ...], tuple[LayerSeries, ...]]:
        """Measured steps, at most MAX_MEASURED, and the columns of every layer."""
        kept = self.measured
        while len(kept) > MAX_MEASURED:
            kept = [kept[index] for index in sorted({*range(1, len(kept), 2), len(kept) - 1})]
        numbers = sorted(kept[0][1]) if kept else []
        columns = []
        for layer in numbers:
            names = kept[0][1][layer]
            values = {name: tuple(_value(name, found[layer][name]) for _, found in kept) for name in names}
            columns.append(LayerSeries(layer, **values))  # type: ignore[arg-type]
        return tuple(step for step, _ in kept), tuple(columns)


def _value(name: str, value: float) -> float | int:
    return int(value) if name == "dq_worst_head" else _rounded(value)


def _rounded(value: float) -> float:
    """To six significant digits: more would make reports long and say nothing."""
    return float(f"{value:.{DIGITS}g}")


def _mean(values: list[float]) -> float:
    timed = [value for value in values if not math.isnan(value)]
    return statistics.fmean(timed) if timed else math.nan


def _largest(values: list[float]) -> float:
    return math.nan if any(math.isnan(value) for value in values) else max(values)
