"""The interval covers what it claims, and decides only when it may."""

import math

import numpy as np
import pytest

from gprojci_suite.bootstrap import RatioInterval, decides, ratio_interval


@pytest.mark.parametrize("pairs", [20, 80])
def test_coverage_on_a_known_distribution(pairs: int) -> None:
    """Of 400 samples whose true median ratio is 1.05, about 95% of the intervals contain it."""
    generator = np.random.default_rng(0)
    trials = 400
    covered = 0
    for trial in range(trials):
        ratios = 1.05 * np.exp(generator.laplace(0.0, 0.05, pairs))
        found = ratio_interval(ratios.tolist(), 0.95, trial)
        covered += found.low <= 1.05 <= found.high
    # Three standard errors of a binomial, and the percentile bootstrap's small bias.
    assert 0.90 < covered / trials < 0.99


def test_more_pairs_narrow_it() -> None:
    generator = np.random.default_rng(1)
    logs = generator.normal(0, 0.1, 320)
    widths = [
        math.log(found.high / found.low)
        for found in (ratio_interval(np.exp(logs[:n]).tolist(), 0.95, 0) for n in (20, 80, 320))
    ]
    assert widths[0] > widths[1] > widths[2]


def test_seeded() -> None:
    ratios = [1.0, 1.1, 0.9, 1.3]
    assert ratio_interval(ratios, 0.9, 7) == ratio_interval(ratios, 0.9, 7)


def test_inverse_ratios_give_the_inverse() -> None:
    ratios = [1.0, 1.1, 0.9, 1.3, 1.2]
    forth, back = ratio_interval(ratios, 0.9, 7), ratio_interval([1 / r for r in ratios], 0.9, 7)
    assert back.ratio == pytest.approx(1 / forth.ratio)
    assert back.low == pytest.approx(1 / forth.high)


def test_an_outlier_moves_little() -> None:
    assert ratio_interval([1.0] * 19 + [100.0], 0.95, 0).ratio == 1.0


@pytest.mark.parametrize(
    ("low", "high", "decided"), [(1.11, 1.2, True), (0.9, 1.09, True), (1.05, 1.15, False), (1.099, 1.2, False)]
)
def test_decides(low: float, high: float, decided: bool) -> None:
    assert decides(RatioInterval(1.0, low, high), 0.1) is decided
