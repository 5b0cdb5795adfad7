"""The rule that finds steps: what it must find, what it must not, and that it errs as rarely as STEPS.md says."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from gprojci_service.regressions import steps
from gprojci_service.regressions.simulation import FAMILY, HEADER, TABLE, Noise, simulate
from gprojci_service.regressions.steps import FIRST, PERSISTENCE, Point, find_steps, threshold


def quiet(*levels, points=40, spread=0.0, seed=1, noise=0.0005):
    """A series that stays at each level for some points."""
    generator = random.Random(seed)
    return [Point(math.log(level) + generator.gauss(0, noise), spread) for level in levels for _ in range(points)]


def test_a_step_is_placed_at_its_commit_and_measured():
    (step,) = find_steps(quiet(1.0, 1.03), series=100)
    assert step.index == 40
    assert step.change == pytest.approx(0.03, abs=0.002)
    assert step.found - step.index + 1 <= 5


def test_two_steps_are_two_and_the_way_back_is_one():
    up, further, back = find_steps(quiet(1.0, 1.05, 1.2, 1.0), series=100)
    assert (up.index, further.index, back.index) == (40, 80, 120)
    assert (up.change > 0, further.change > 0, back.change < 0) == (True, True, True)


def test_what_was_found_stays_when_points_are_added():
    points = quiet(1.0, 1.05, 1.2)
    (first, *_) = find_steps(points, series=100)
    assert find_steps(points[: first.found + 1], series=100) == [first]
    assert find_steps(points[: first.found], series=100) == []


def test_one_bad_commit_is_no_step():
    points = quiet(1.0)
    points[35:35] = [Point(math.log(3.0))] * (PERSISTENCE - 1)
    assert find_steps(points, series=100) == []


@pytest.mark.parametrize("change", [0.004, 0.008])
def test_what_is_smaller_than_the_smallest_step_is_left_alone(change):
    assert find_steps(quiet(1.0, 1.0 + change), series=1) == []


def test_a_noise_that_the_session_reports_counts_although_the_points_happen_to_agree():
    assert find_steps(quiet(1.0, 1.03, points=30), series=10) != []
    assert find_steps(quiet(1.0, 1.03, points=30, spread=0.03), series=10) == []


def test_nothing_is_told_of_a_young_series():
    assert find_steps(quiet(1.0, 2.0, points=FIRST // 2), series=1) == []


def test_errors_that_repeat_bit_by_bit_can_step():
    points = [Point(math.log(0.002))] * 30 + [Point(math.log(0.0021))] * 10
    (step,) = find_steps(points, series=1000)
    assert step.index == 30


def test_more_series_ask_for_more_evidence():
    assert threshold(1000) > threshold(10) > threshold(1) == threshold(0)


def test_the_document_has_the_numbers_of_the_rule():
    text = Path(steps.__file__).with_name("STEPS.md").read_text()
    assert HEADER in text
    assert [noise for noise in TABLE if f"| {noise.between:.1%} | {noise.correlation:g} | " not in text] == []
    for said in (
        f"up to {steps.WINDOW} points",
        f"less than {steps.NOISE_FLOOR:.1%}",
        f"first {FIRST} points",
        f"at least {steps.SMALLEST_STEP:.0%}",
        f"log(series × {steps.COMMITS_PER_FALSE_STEP})",
        f"{steps.DEPENDENCE:g} times less",
    ):
        assert said in " ".join(text.split()), said


def test_the_rates_of_the_document():
    """A small version of the table; without the threshold's correction or the tails of the noise it fails."""
    rates = simulate(Noise(0.01, 0.2), 60, seed=5)
    assert rates.false + rates.early == 0
    assert rates.soon >= 0.95 * rates.series
    generator = random.Random(4)
    noisy = [[Point(generator.gauss(0, 0.01)) for _ in range(200)] for _ in range(60)]
    assert [find_steps(points, series=FAMILY) for points in noisy] == [[]] * 60
