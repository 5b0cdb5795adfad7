"""The samples of a project as CSV or JSON lines, page by page: a long history needs no more memory than a short one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, Literal

from gprojci_service.database import Database
from gprojci_service.models import Sample, Series
from gprojci_service.results import repository
from gprojci_service.results.repository import Choice

Format = Literal["csv", "jsonl"]
MEDIA_TYPES: dict[Format, str] = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
PAGE = 1000
FIELDS = (
    "sha",
    "revision",
    "backend",
    "case",
    "metric",
    "unit",
    "value",
    "low",
    "high",
    "count",
    "hardware",
    "ruler_revision",
    "job",
    "measured_at",
)


def stream(database: Database, project_id: int, choice: Choice, form: Format) -> Iterator[str]:
    """The chosen samples, oldest first; each page is read in a transaction of its own, and none is held meanwhile."""
    if form == "csv":
        yield _csv([FIELDS])
    after = 0
    while True:
        with database.session(writes=False) as session:
            rows = repository.page_of_samples(session, project_id, choice, after, PAGE)
        if not rows:
            return
        after = rows[-1][0].id
        entries = [_entry(*row) for row in rows]
        if form == "csv":
            yield _csv([list(entry.values()) for entry in entries])
        else:
            yield "".join(json.dumps(entry) + "\n" for entry in entries)


def _entry(sample: Sample, series: Series, sha: str, job_id: int) -> dict[str, Any]:
    values = (
        sha,
        sample.revision,
        series.backend,
        series.case,
        series.metric,
        series.unit,
        sample.value,
        sample.low,
        sample.high,
        sample.count,
        series.hardware,
        series.ruler_revision,
        job_id,
        sample.measured_at.isoformat(),
    )
    return dict(zip(FIELDS, values, strict=True))


def _csv(rows: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
