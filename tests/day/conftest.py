"""Fixtures of the day: its modules, and a service with everybody who speaks to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts neither there
sys.path.insert(0, str(Path(__file__).parents[2] / "service" / "tests"))

from day_clock import Clock
from day_github import DayGitHub
from day_service import DayService
from day_storm import Storm
from day_worker import Day
from deployment import SECRET
from github_server import start


@pytest.fixture
def begin(tmp_path: Path, postgres_url: str, broker_url: str) -> Iterator[Callable[[int | None], Any]]:
    """Begins a day, in calm weather or in the storm of a seed."""
    with ExitStack() as stack:

        def make(seed: int | None) -> DayService:
            clock, storm = Clock(), Storm(seed)
            github = DayGitHub(clock, storm, SECRET)
            stack.callback(start(github)[1])
            day = Day(github.history, clock, storm, seed=2026)
            return stack.enter_context(DayService(tmp_path / "service", postgres_url, broker_url, github, day))

        yield make
