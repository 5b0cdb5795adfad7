"""The service's wall clock jumps in the middle of a job."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

HOUR = 3600


@pytest.fixture(autouse=True)
def _back_to_the_present(service: Any, clock: Any) -> Iterator[None]:
    yield
    clock.set(0)
    service.wait(
        "nothing is of another time", lambda: not service.rows("SELECT 1 FROM attempt WHERE state = 'running'")
    )


def test_a_jump_forward_costs_a_try_at_most(service: Any, clock: Any) -> None:
    """Leases and the hard limit have passed at once, by the clock alone."""
    began = time.monotonic()
    with service.held("run"):
        sha = service.push()
        service.reached(sha, "run")
        clock.set(HOUR)
        time.sleep(2)
    *lost, last = service.ends_well(sha, began)
    assert last == ("reported", None)
    assert set(lost) <= {("lost", "lost_worker")}


def test_a_jump_forward_costs_nothing_where_the_worker_is_heard_of_before_the_reaper(service: Any, clock: Any) -> None:
    began = time.monotonic()
    with service.held("run"):
        sha = service.push()
        service.reached(sha, "run")
        service.signal("tasks", signal.SIGSTOP)
        clock.set(HOUR)
        heard = "SELECT heartbeat_at > now() + '30 min' FROM attempt JOIN job ON job.id = job_id WHERE head_sha = %s"
        service.wait("a heartbeat an hour from now", lambda: service.rows(heard, sha) == [(True,)])
    assert service.ends_well(sha, began) == [("reported", None)]


def test_after_a_jump_back_a_dead_worker_is_not_waited_for(service: Any, clock: Any) -> None:
    """By the clock its lease has another hour, and the reaper was here an hour from now."""
    began = time.monotonic()
    with service.held("run"):
        sha = service.push()
        service.reached(sha, "run")
        service.kill("worker")
        clock.set(-HOUR)
        service.wait("the job is given up for lost", lambda: lost(service, sha), 30)
    service.start("worker")
    assert service.ends_well(sha, began) == [("lost", "lost_worker"), ("reported", None)]


def lost(service: Any, sha: str) -> bool:
    """Whether the commit's first attempt is."""
    query = "SELECT attempt.state FROM attempt JOIN job ON job.id = job_id WHERE head_sha = %s"
    return bool(service.rows(query, sha) == [("lost",)])
