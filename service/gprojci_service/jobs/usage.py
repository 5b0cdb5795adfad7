"""What a job took of its workers: time, how much of it was measuring, and what that cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gprojci_service.models import Attempt
from gprojci_service.settings import Settings

MEASURING = "run"
"""The step in which the ruler has the device; before it the host fetches and builds."""
WORKING = "working_seconds"
"""Of that step, those in which backends computed or were timed, as its report says; the rest is starting processes,
references and comparisons."""


@dataclass(frozen=True)
class Usage:
    """Of all attempts of a job together; those that were lost or handed back took the device as well."""

    seconds: float
    """From the claims to the ends of the attempts."""
    measuring_seconds: float
    """Of these while backends computed or were timed; the whole step `run` where its report does not tell."""
    cost: float | None
    """None where the hardware class has no price."""
    currency: str

    @property
    def measuring_share(self) -> float | None:
        """Part of the time in which it measured; None before any time has passed."""
        return min(1.0, self.measuring_seconds / self.seconds) if self.seconds > 0 else None


def usage(attempts: Iterable[Attempt], hardware: str, settings: Settings, moment: datetime) -> Usage:
    """What attempts have taken until `moment`."""
    total = measuring = 0.0
    for attempt in attempts:
        total += max(0.0, ((attempt.finished_at or moment) - attempt.started_at).total_seconds())
        measuring += sum(_measuring_seconds(step) for step in attempt.steps)
    price = settings.hour_prices.get(hardware)
    cost = None if price is None else total / 3600 * price
    return Usage(total, measuring, cost, settings.currency)


def note_working(steps: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """An attempt's steps with what its report says of the one in which it was measured."""
    return [step | {WORKING: seconds} if step.get("name") == MEASURING else step for step in steps]


def _measuring_seconds(step: dict[str, Any]) -> float:
    if step.get("name") != MEASURING:
        return 0.0
    told = step.get(WORKING)
    return float(step.get("seconds") or 0.0) if told is None else float(told)
