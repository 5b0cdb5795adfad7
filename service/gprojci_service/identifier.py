"""The numbers of rows as requests name them: what fits into the database's 64-bit keys, anything else is a 422."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le

RowId = Annotated[int, Ge(1), Le(2**63 - 1)]
