"""The rule by which the child's clock is held against the parent's, on readings made up."""

import random
from collections.abc import Callable

import pytest

from gprojci_suite import clock
from gprojci_suite.clock import Reading, Rounds, SingleCalls, batches, disagreement

CALL = 0.01


class Child:
    """Calls of 10 ms on a machine that adds exponentially distributed seconds to a share of all requests."""

    def __init__(self, rate: float, seed: int, share: float = 1.0, beside: float = 1e-4, per_call: float = 0.0) -> None:
        self.noise = random.Random(seed)
        self.rate, self.share, self.beside, self.per_call = rate, share, beside, per_call
        self.now = 0.0

    def empty(self, calls: int) -> float:
        seconds = 2e-4 + (self.noise.expovariate(1 / self.beside) if self.noise.random() < self.share else 0.0)
        self.now += seconds
        return seconds

    def timed(self, calls: int) -> Reading:
        seconds = calls * CALL
        self.now += seconds
        return Reading(self.empty(calls) + seconds + calls * self.per_call, self.rate * seconds, calls)

    def accused(self) -> bool:
        return disagreement(self.timed, self.empty, CALL, clock.SLACK["cpu"]) is not None


@pytest.mark.parametrize(("rate", "accused"), [(1.0, False), (0.97, False), (0.9, True), (1.1, True), (0.5, True)])
@pytest.mark.parametrize(("share", "beside"), [(1.0, 1e-4), (0.02, 0.05)])
def test_a_clock_is_judged_within_seconds(rate: float, accused: bool, share: float, beside: float) -> None:
    for seed in range(10):
        child = Child(rate, seed, share, beside)
        assert child.accused() is accused
        assert child.now < 16


def test_a_quiet_machine_tells_at_once() -> None:
    for rate, most in ((1.0, 0.4), (0.9, 0.8), (1.1, 0.8)):
        child = Child(rate, 1)
        child.accused()
        assert child.now < most


@pytest.mark.parametrize("beside", [0.01, 0.1, 3.0])
def test_an_overloaded_machine_accuses_nobody(beside: float) -> None:
    assert not any(Child(1.0, seed, 0.7, beside).accused() for seed in range(10))


def test_what_an_honest_call_costs_beside_its_time_is_allowed_for() -> None:
    assert not any(Child(1.0, seed, per_call=4e-4).accused() for seed in range(10))
    assert all(Child(1.0, seed, per_call=7e-4).accused() for seed in range(10))


def test_the_detail_is_about_the_calls() -> None:
    child = Child(0.9, 1)
    found = disagreement(child.timed, child.empty, CALL, clock.SLACK["cpu"])
    assert found is not None
    assert found.called == pytest.approx(0.1 * len(found.readings), rel=0.02)
    assert found.claimed / found.called == pytest.approx(0.9, rel=0.02)


def test_what_covered_the_calls_is_no_time_of_theirs() -> None:
    empties = [1e-4 + n * 1e-7 for n in range(15)]
    assert Rounds([Reading(0.11, 0.1, 10, 0.01)] * 3, empties).agrees(1e-4) is True
    assert Rounds([Reading(0.15, 0.1, 10, 0.01)] * 3, empties).agrees(1e-4) is None, "three rounds accuse nobody"
    six = [1e-4 + n * 1e-7 for n in range(30)]
    assert Rounds([Reading(0.15, 0.1, 10, 0.01)] * 6, six).agrees(1e-4) is False
    assert Rounds([Reading(0.11, 0.1, 10, 9.0)] * 6, six).agrees(1e-4) is False, "more than went by"


def test_batches_grow_within_bounds() -> None:
    assert list(batches(0.01)) == [(10, 6), (40, 12), (160, 6)]
    assert list(batches(3.0)) == [(1, 6), (1, 12), (1, 6)]
    assert max(calls for calls, _ in batches(1e-6)) == clock.MOST_CALLS


def singles(of: Callable[[random.Random], Reading], beside: float, seed: int) -> SingleCalls:
    """Forty calls, and ten empty requests on a machine that adds exponentially distributed seconds to each."""
    noise = random.Random(seed)
    return SingleCalls([of(noise) for _ in range(40)], [noise.expovariate(1 / beside) for _ in range(10)])


def test_single_calls() -> None:
    slack = clock.SINGLE_SLACK["cpu"]

    def at(rate: float, beside: float) -> Callable[[random.Random], Reading]:
        return lambda noise: Reading(0.1 + noise.expovariate(1 / beside), 0.1 * rate)

    for seed in range(200):
        assert all(singles(at(1.0, beside), beside, seed).agree(slack) for beside in (1e-4, 1e-2, 0.3))
        assert not singles(at(0.8, 1e-4), 1e-4, seed).agree(slack)
        assert not singles(at(1.02, 1e-4), 1e-4, seed).agree(slack), "more than went by"
    assert SingleCalls([Reading(1.0, 0.1)] * 4, [0.0]).agree(slack), "too few to tell"
    paused = [Reading(0.1, 3.0)] * 3 + [Reading(0.1, 0.0999)] * 20  # the machine stood still, its GPU did not
    assert SingleCalls(paused, [1e-4] * 5).agree(slack)
