"""What the endpoints of imported reports give."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class ImportedReportOut(BaseModel):
    """An imported report, without its body."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    title: str
    hardware: str
    content_hash: str
    schema_version: int
    imported_at: datetime
