"""The rule by which the child's clock is held against the parent's, on readings made up."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from gprojci_suite import clock
from gprojci_suite.clock import Check, Reading, Rounds, SingleCalls, batch, check

CALL = 0.01


class Child:
    """Calls of 10 ms on a machine that adds exponentially distributed seconds to a share of all requests."""

    def __init__(self, rate: float, seed: int, share: float = 1.0, beside: float = 1e-4, per_call: float = 0.0) -> None:
        self.noise = random.Random(seed)
        self.rate, self.share, self.beside, self.per_call = rate, share, beside, per_call
        self.now = 0.0

    def empty(self, calls: int) -> Reading:
        seconds = 2e-4 + (self.noise.expovariate(1 / self.beside) if self.noise.random() < self.share else 0.0)
        self.now += seconds
        return Reading(seconds, 0.0, calls)

    def timed(self, calls: int) -> Reading:
        seconds = calls * (CALL + self.per_call)
        self.now += seconds
        return Reading(self.empty(calls).elapsed + seconds, self.rate * calls * CALL, calls)

    def check(self, *, fastest: float = CALL, patient: bool = True) -> Check:
        slack, now = clock.SLACK["cpu"], lambda: self.now
        return check(self.timed, self.empty, fastest, slack, patient=patient, order=self.noise, now=now)

    def accused(self) -> bool:
        return self.check().verdict == "disagrees"


@pytest.mark.parametrize(("rate", "accused"), [(1.0, False), (0.97, False), (0.9, True), (1.1, True), (0.5, True)])
@pytest.mark.parametrize(("share", "beside"), [(1.0, 1e-4), (0.02, 0.05)])
def test_a_clock_is_judged_within_seconds(rate: float, accused: bool, share: float, beside: float) -> None:
    for seed in range(10):
        child = Child(rate, seed, share, beside)
        assert child.accused() is accused
        assert child.now < clock.PATIENCE * clock.SECONDS + 1


def test_a_quiet_machine_tells_at_once() -> None:
    for rate, most in ((1.0, 0.2), (0.9, 0.4), (1.1, 0.4)):
        child = Child(rate, 1)
        child.accused()
        assert child.now < most


@pytest.mark.parametrize("beside", [0.01, 0.1, 3.0])
def test_an_overloaded_machine_accuses_nobody(beside: float) -> None:
    assert not any(Child(1.0, seed, 0.7, beside).accused() for seed in range(10))


def test_what_an_honest_call_costs_beside_its_time_is_allowed_for() -> None:
    assert not any(Child(1.0, seed, per_call=4e-4).accused() for seed in range(10))
    assert all(Child(1.0, seed, per_call=7e-4).accused() for seed in range(10))


def test_a_check_ends_however_noisy_the_machine() -> None:
    for seed in range(20):
        child = Child(1.0, seed, 0.7, 0.2)
        found = child.check()
        assert found.verdict == "unclear"
        slowest = 3.0  # the request under way
        assert clock.SECONDS <= found.seconds == child.now < clock.SECONDS + slowest
        assert child.check(patient=False).verdict == "unclear"


def test_a_suspect_is_looked_at_for_longer_but_not_for_ever() -> None:
    class Interrupted(Child):
        """Every seventh empty request is read as a minute, which is not enough to doubt the others."""

        empties = 0

        def empty(self, calls: int) -> Reading:
            self.empties += 1
            return replace(super().empty(calls), elapsed=60.0) if self.empties % 7 == 0 else super().empty(calls)

        def timed(self, calls: int) -> Reading:
            seconds = calls * CALL
            self.now += seconds
            return Reading(seconds, self.rate * seconds, calls)

    brief, long = (Interrupted(0.9, 1).check(patient=patient) for patient in (False, True))
    assert brief.verdict == long.verdict == "unclear"
    assert clock.SECONDS <= brief.seconds < clock.SECONDS + 0.5
    assert clock.SECONDS + 1 < long.seconds < clock.PATIENCE * clock.SECONDS + 0.5


def test_a_check_waits_for_calls_that_take_seconds() -> None:
    class Slow(Child):
        def timed(self, calls: int) -> Reading:
            assert calls == 1
            self.now += 3.0
            return Reading(3.0002, 2.7)

    child = Slow(1.0, 1)
    assert child.check(fastest=3.0).verdict == "disagrees"
    assert child.now < clock.CALLS * 3.0 + 3.1


def test_requests_are_planned_from_what_calls_take_in_one() -> None:
    child = Child(1.0, 1)
    found = child.check(fastest=30 * CALL)
    assert found.rounds.readings[0].calls == int(clock.STAGES[0][0] / (CALL + 5e-4)), "not from the first, slow calls"
    assert len(found.rounds.empties) == clock.EMPTIES[1] * len(found.rounds.readings), "as many as fit in the time"


def test_a_report_says_what_was_read() -> None:
    found = Child(0.9, 1).check()
    entry = found.entry("gproj", "head", "1x1x8x64.causal.bfloat16", 2)
    assert (entry.verdict, entry.process, entry.calls) == ("disagrees", 2, found.rounds.readings[0].calls)
    assert entry.child_seconds / CALL == pytest.approx(0.9)
    assert entry.ruler_seconds / CALL == pytest.approx(1.0, rel=0.02)
    assert 0 < entry.empty_low * entry.calls < 3e-4 < entry.empty_high * entry.calls < 1e-3
    assert entry.check_seconds == found.seconds


def test_the_detail_is_about_the_calls() -> None:
    found = Child(0.9, 1).check().rounds
    calls = sum(reading.calls for reading in found.readings)
    assert found.called == pytest.approx(CALL * calls, rel=0.02)
    assert found.claimed / found.called == pytest.approx(0.9, rel=0.02)


def test_what_covered_the_calls_is_no_time_of_theirs() -> None:
    empties = [1e-4 + n * 1e-7 for n in range(15)]
    assert Rounds([Reading(0.11, 0.1, 10, 0.01)] * 3, empties).judge(1e-4)[0] is True
    assert Rounds([Reading(0.15, 0.1, 10, 0.01)] * 3, empties).judge(1e-4)[0] is None, "three rounds accuse nobody"
    six = [1e-4 + n * 1e-7 for n in range(30)]
    assert Rounds([Reading(0.15, 0.1, 10, 0.01)] * 6, six).judge(1e-4)[0] is False
    assert Rounds([Reading(0.11, 0.1, 10, 9.0)] * 6, six).judge(1e-4)[0] is False, "more than went by"


def test_batches_have_bounds() -> None:
    assert [batch(0.1, call) for call in (0.01, 3.0, 1e-7)] == [10, 1, clock.MOST_CALLS]


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
