"""Retention: of old reports the medians stay, and most of the single values that they are of go.

What curves, gates and comparisons read stays: every summary, every interval with its paired ratios, the worst slice of
each input and tensor, and all samples of series, which are medians already.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.results import repository
from gprojci_service.settings import Settings

AT_ONCE = 20
"""Reports of one transaction; they may be long."""


def thin(session: Session, settings: Settings, moment: datetime) -> int:
    """Thins some of the reports that came more than `GPROJCI_RAW_VALUES_DAYS` ago, the oldest first; returns how many.

    Without the setting none is.
    """
    if settings.raw_values_days is None:
        return 0
    old = repository.whole_before(session, moment - timedelta(days=settings.raw_values_days), AT_ONCE)
    for row in old:
        row.body, row.thinned_at = thinned(row.body), moment
    return len(old)


def thinned(body: dict[str, Any]) -> dict[str, Any]:
    """A suite report with one time for each measurement, its median, and of its slices only the worst of each summary
    line; without the GPU's states over the session. It still fits the contract."""
    kept = {**body, "environment": {**body["environment"], "samples": None}}
    accuracy = body.get("accuracy")
    if accuracy:
        worst = {_of(line, line["worst_slice"]) for line in accuracy["summary"]}
        slices = [entry for entry in accuracy["slices"] if _of(entry, entry["slice"]) in worst]
        kept["accuracy"] = {**accuracy, "slices": slices}
    for section in ("throughput", "step"):
        if body.get(section):
            times = [{**one, "seconds": [one["median_seconds"]]} for one in body[section]["measurements"]]
            kept[section] = {**body[section], "measurements": times}
    return kept


def _of(entry: dict[str, Any], name: str | None) -> tuple[Any, ...]:
    return (*(entry[part] for part in ("backend", "revision", "input", "tensor")), name)
