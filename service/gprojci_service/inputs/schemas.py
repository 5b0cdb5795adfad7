"""What the input set endpoints give."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict


class InputSetOut(BaseModel):
    """An input set."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    name: str
    content_hash: str
    description: dict[str, Any]
    first_seen_at: datetime
    last_seen_at: datetime
