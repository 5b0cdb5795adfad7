"""What the input set endpoints take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from gprojci_suite.contract import input_file

InputName = Annotated[str, StringConstraints(pattern=rf"^{input_file.NAME}$", max_length=100)]


class UploadOut(BaseModel):
    """The file of an uploaded input set."""

    size_bytes: int
    project: str | None
    uploaded_by: str
    uploaded_at: datetime


class InputSetOut(BaseModel):
    """An input set that some report used, or that was uploaded."""

    name: str
    content_hash: str
    description: dict[str, Any]
    """An entry of a report's `inputs`; of an uploaded set that no report used, `statistics` may be empty."""
    uploaded: UploadOut | None
    first_seen_at: datetime | None
    """In a report; null where none used it."""
    last_seen_at: datetime | None


class Statistics(BaseModel):
    """The statistics of an input set, as `gprojci-suite describe` prints them."""

    content_hash: str
    statistics: list[dict[str, Any]] = Field(max_length=100_000)
