"""The network between the parts fails: cut, slow, or half of a connection gone without a word."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from gprojci_service.queue import SERVICE_QUEUE, measure_queue

LONG = pytest.mark.skipif(not os.environ.get("ALL_FAULTS"), reason="for its time left to make test-faults")


@pytest.mark.parametrize("step", ["build", pytest.param("decide", marks=LONG)])
def test_the_database_is_cut_off_for_a_while(service: Any, step: str) -> None:
    began = time.monotonic()
    with service.held(step):
        sha = service.push()
        service.reached(sha, step)
        service.to_database.cut()
    time.sleep(2)
    service.to_database.mend()
    assert service.ends_well(sha, began)[-1] == ("reported", None)


@LONG
def test_everything_is_slow(service: Any) -> None:
    began = time.monotonic()
    proxies = (service.to_database, service.to_broker, service.from_worker_to_broker)
    try:
        for proxy in proxies:
            proxy.delay_seconds = 0.02
        assert service.ends_well(service.push(), began)[-1] == ("reported", None)
    finally:
        for proxy in proxies:
            proxy.mend()


@pytest.mark.parametrize("which", [pytest.param("to_broker", marks=LONG), "from_worker_to_broker"])
def test_the_broker_is_cut_off_for_a_while(service: Any, which: str) -> None:
    began = time.monotonic()
    with service.held("build"):
        sha = service.push()
        service.reached(sha, "build")
        getattr(service, which).cut()
    time.sleep(2)
    other = service.push()
    getattr(service, which).mend()
    assert service.ends_well(sha, began) == [("reported", None)]
    assert service.ends_well(other, began) == [("reported", None)]


@LONG
@pytest.mark.parametrize("proxies", [("to_broker", "from_worker_to_broker"), ("to_database",)])
def test_half_a_connection_is_none(service: Any, proxies: tuple[str, ...]) -> None:
    """Whoever waits on a connection whose other end is gone hears nothing, no error either."""
    began = time.monotonic()
    ways = [getattr(service, name) for name in proxies]
    for way in ways:
        service.wait("there are connections", lambda way=way: way.connections)
        way.halve()
    assert service.ends_well(service.push(), began)[-1] == ("reported", None)


def test_redis_loses_all_its_data(service: Any) -> None:
    began = time.monotonic()
    with service.held("build"):
        measured = service.push()
        service.reached(measured, "build")
        waiting = service.push()
        service.wait("its message waits", lambda: service.redis.llen(measure_queue("cpu")))
        service.redis.flushall()
        assert service.redis.llen(SERVICE_QUEUE) == 0
    for sha in (measured, waiting):
        assert service.ends_well(sha, began) == [("reported", None)]
