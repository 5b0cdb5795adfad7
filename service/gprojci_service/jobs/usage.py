"""What a job took of its workers: time, how much of it was measuring, and what that cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gprojci_service.models import Attempt
from gprojci_service.settings import Settings

MEASURING = "run"
"""The step in which the ruler has the device; before it the host fetches and builds."""


@dataclass(frozen=True)
class Usage:
    """Of all attempts of a job together; those that were lost or handed back took the device as well."""

    seconds: float
    """From the claims to the ends of the attempts."""
    measuring_seconds: float
    """Of these in the step `run`."""
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
        measuring += sum(step.get("seconds") or 0.0 for step in attempt.steps if step.get("name") == MEASURING)
    price = settings.hour_prices.get(hardware)
    cost = None if price is None else total / 3600 * price
    return Usage(total, measuring, cost, settings.currency)
