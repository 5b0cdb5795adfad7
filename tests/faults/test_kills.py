"""kill -9 of each process at each step of a job: all of it with ALL_FAULTS=1 (`make test-faults`), else a part."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import psutil
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
        children = service.children(part)
        service.kill(part)
        service.wait("its processes die with it", lambda: not any(map(runs, children)), 10)
        if part == "worker":
            assert not service.measuring()
        service.start(part)
    *lost, last = service.ends_well(sha, began)
    assert last == ("reported", None)
    # Where nobody can be told for longer than the lease, an attempt may be lost although its worker is well.
    assert set(lost) <= {("lost", "lost_worker")}
    if part == "worker" and step in ("fetch", "build", "run"):
        assert len(lost) == 1, "it costs one try: the worker's new start ends it, or its lease does"


def runs(process: psutil.Process) -> bool:
    """Whether it is there, and not merely unburied."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
