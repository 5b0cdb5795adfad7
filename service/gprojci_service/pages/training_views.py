"""What the templates of training runs are given."""

from __future__ import annotations

from dataclasses import dataclass

from gprojci_service.models import Training
from gprojci_service.pages.schemas import Cell, Choice, Drawing, Table


@dataclass(frozen=True)
class TrainingRow:
    """A training in the list, in words."""

    training: Training
    model: str
    backends: str
    seeds: str
    steps: str
    runs: str
    furthest: Cell
    """By how much a final loss lies above the FP32 one's at most, and of which backend."""
    dq_error: Cell
    """Largest error of dQ in the end, and of which backend."""


@dataclass(frozen=True)
class TrainingListView:
    """The list of trainings, newest first."""

    rows: tuple[TrainingRow, ...]


@dataclass(frozen=True)
class CaptureView:
    """An input set that a run wrote; `url` leads to it where the service knows it."""

    name: str
    url: str
    words: str


@dataclass(frozen=True)
class TrainingView:
    """A training's page."""

    training: Training
    words: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    story: Drawing | None
    runs: Table
    choices: tuple[Choice, ...]
    detail: Drawing | None
    captures: tuple[CaptureView, ...]
    facts: tuple[tuple[str, str], ...]
