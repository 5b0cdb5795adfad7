"""The rule by which the child's clock is held against the parent's, on readings made up."""

import random

import pytest

from gprojci_suite import clock
from gprojci_suite.clock import Reading, SingleCalls, batches


@pytest.mark.parametrize(("rate", "agrees"), [(1.0, True), (0.97, True), (0.9, False), (1.1, False), (0.5, False)])
def test_a_batch_agrees_within_five_percent(rate: float, agrees: bool) -> None:
    assert Reading(0.3 + 0.01, 0.3 * rate, 10).agrees(0.01, clock.SLACK["cpu"]) is agrees


def test_what_falls_beside_the_calls_is_outgrown() -> None:
    beside = 0.12  # seconds a busy machine adds to every request, whatever is in it
    seconds = [0.2 * 2**attempt for attempt in range(clock.ATTEMPTS)]
    honest = [Reading(s + beside, s, 10).agrees(0.0, clock.SLACK["cpu"]) for s in seconds]
    fast = [Reading(s + beside, 0.9 * s, 10).agrees(0.0, clock.SLACK["cpu"]) for s in seconds]
    assert honest[0] is False
    assert honest[-1] is True
    assert not any(fast)


def test_batches_double_within_bounds() -> None:
    assert list(batches(0.01)) == [20, 40, 80, 160, 320, 640, 640, 640]
    assert list(batches(3.0)) == [2] * clock.ATTEMPTS
    assert max(batches(1e-6)) == clock.MOST_CALLS


def single_calls(rate: float, beside: float, seed: int) -> SingleCalls:
    """Forty calls of 100 ms on a machine that adds exponentially distributed seconds to every request."""
    noise = random.Random(seed)
    readings = [Reading(0.1 + noise.expovariate(1 / beside), 0.1 * rate) for _ in range(40)]
    return SingleCalls(readings, [noise.expovariate(1 / beside) for _ in range(10)])


def test_single_calls() -> None:
    assert all(
        single_calls(1.0, beside, seed).agree(clock.SINGLE_SLACK["cpu"])
        for beside in (1e-4, 1e-2, 0.3)
        for seed in range(200)
    )
    assert not any(single_calls(0.8, 1e-4, seed).agree(clock.SINGLE_SLACK["cpu"]) for seed in range(200))
    assert SingleCalls([Reading(1.0, 0.1)] * 4, [0.0]).agree(clock.SINGLE_SLACK["cpu"])  # too few to tell
