"""How a regression reads in one line, and how bad it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gprojci_service.models import RegressionSeries, Series

SEVERE_CHANGE = 0.10
"""From this change on a step is critical, a fraction."""


def change(entry: RegressionSeries) -> float | None:
    """New over old level, minus one; None where only a limit was broken."""
    return entry.after / entry.before - 1 if entry.before else None


def amount(entry: RegressionSeries) -> str:
    """The change as text: `+3.1%`, or `43×` where percents would be long."""
    relative = change(entry)
    if relative is None:
        return "over its limit"
    return f"{relative:+.1%}" if relative < 10 else f"{relative + 1:.3g}×"


def name(series: Series) -> str:
    """A series as text."""
    return f"{series.metric} of {series.backend} on {series.case} ({series.hardware})"


def summary(shown: Sequence[tuple[RegressionSeries, Series]]) -> str:
    """A regression in one line, its largest change first."""
    if not shown:
        return "no series"
    entry, series = shown[0]
    first = f"{name(series)} {amount(entry)}"
    return first if len(shown) == 1 else f"{len(shown)} series: {first}, …"


def severity(event: str, entries: Sequence[RegressionSeries]) -> str:
    """A broken limit or a large step is critical, another one a warning, a repair an information."""
    if event == "regression.fixed":
        return "info"
    severe = any(entry.limit is not None or (change(entry) or 0.0) >= SEVERE_CHANGE for entry in entries)
    return "critical" if severe else "warning"


def facts(entry: RegressionSeries, series: Series) -> dict[str, Any]:
    """A series of a regression as plain data, in the unit of the series."""
    return {
        "backend": series.backend,
        "case": series.case,
        "metric": series.metric,
        "hardware": series.hardware,
        "unit": series.unit,
        "before": entry.before,
        "after": entry.after,
        "change": change(entry),
        "limit": entry.limit,
    }
