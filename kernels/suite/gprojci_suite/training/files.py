"""The files of a run's folder: whole or not at all, whenever the process is killed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from gprojci_suite.contract import codec
from gprojci_suite.contract.training import TrainingRun

CHECKPOINT, RUN, SETTINGS, LOG = "checkpoint.pt", "run.json", "settings.json", "log.txt"


def replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a new file, and give it the name `path` once it is on the disk."""
    unfinished = path.with_name(f".{path.name}.part")
    with unfinished.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def replace_text(path: Path, text: str) -> None:
    """The same with a text."""
    replace(path, lambda file: file.write(text.encode()))


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint of a run."""
    replace(folder / CHECKPOINT, lambda file: torch.save(state, file))


def load_checkpoint(folder: Path, device: str) -> dict[str, Any] | None:
    """The checkpoint of a run, or None where there is none yet."""
    path = folder / CHECKPOINT
    found: dict[str, Any] | None = None
    if path.exists():
        found = torch.load(path, map_location=device, weights_only=True)
    return found


def save_run(folder: Path, run: TrainingRun) -> None:
    """Replace what is known of a run."""
    text = codec.dumps(codec.encode(run))
    codec.decode(TrainingRun, codec.loads(text))
    replace_text(folder / RUN, text)


def load_run(folder: Path) -> TrainingRun | None:
    """What is known of a run, or None where it has not begun."""
    path = folder / RUN
    return codec.decode(TrainingRun, codec.loads(path.read_text())) if path.exists() else None
