"""kill -9 of each process at each step of a job: all of it with ALL_FAULTS=1 (`make test-faults`), else a part."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

STEPS = ("queue", "fetch", "build", "run", "decide")
PARTS = ("web", "worker", "tasks", "redis", "postgres")
IN_CI = [("queue", "redis"), ("build", "worker"), ("run", "web"), ("decide", "tasks"), ("decide", "postgres")]
KILLS = [(step, part) for step in STEPS for part in PARTS] if os.environ.get("ALL_FAULTS") else IN_CI


@pytest.mark.parametrize(("step", "part"), KILLS)
def test_a_killed_process_loses_nothing(service: Any, step: str, part: str) -> None:
    began = time.monotonic()
    with service.held(step):
        sha = service.push()
        service.reached(sha, step)
        service.kill(part)
        if part == "worker":
            service.wait("its attempt's processes die with it", lambda: not service.measuring(), 10)
        service.start(part)
    *lost, last = service.ends_well(sha, began)
    assert last == ("reported", None)
    # Where nobody can be told for longer than the lease, an attempt may be lost although its worker is well.
    assert set(lost) <= {("lost", "lost_worker")}
    if part == "worker" and step in ("fetch", "build", "run"):
        assert len(lost) == 1, "the worker that was started anew frees its attempt at once"
