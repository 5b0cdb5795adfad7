"""The interval covers what it claims, decides only when it may, and errs as rarely as DECIDING.md says."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gprojci_suite import simulation
from gprojci_suite.decision import RatioInterval, between_sessions, decides, next_look, ratio_interval


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


@pytest.fixture(scope="module")
def rates() -> list[simulation.Rates]:
    """2,000 sessions at the noise of an H200, half of them A/A, half of them +3%."""
    return simulation.rates(1000, seed=0)


def test_no_false_alarm_in_a_thousand_sessions_from_a_margin_of_one_percent_on(rates: list[simulation.Rates]) -> None:
    alarms = {item.margin: item.above for item in rates if item.step == 0}
    assert {margin: count for margin, count in alarms.items() if margin >= 0.01 and count} == {}
    assert 25 < alarms[0.0] < 100, "a margin of zero is no limit: three looks at a 95% interval"


def test_three_percent_are_found_with_the_default_pairs(rates: list[simulation.Rates]) -> None:
    for item in rates:
        if item.step == 0.03 and 0.01 <= item.margin <= 0.02:
            assert item.above >= 950, item
            assert item.below == 0, item


def test_the_document_shows_what_the_simulation_prints(rates: list[simulation.Rates]) -> None:
    document = (Path(__file__).parent.parent / "DECIDING.md").read_text()
    hint = "out of date; run python -m gprojci_suite.simulation"
    assert simulation.table(rates) in document, hint
    assert simulation.without_interleaving(250, seed=0) in document, hint


def test_sessions_that_are_not_interleaved_need_the_drift() -> None:
    plain, widened = (simulation.across_sessions(0.01, 60, 1, widened=flag) for flag in (False, True))
    assert plain > 6
    assert widened <= 2


@pytest.mark.parametrize("pairs", [20, 80])
def test_it_agrees_with_the_exact_interval_from_order_statistics(pairs: int) -> None:
    logs = np.random.default_rng(4).normal(0.03, 0.014, pairs)
    exact = stats.quantile_test(logs, q=0, p=0.5).confidence_interval(0.95)
    found = ratio_interval(np.exp(logs).tolist(), 0.95, 0)
    assert math.log(found.low) == pytest.approx(exact.low, abs=0.003)
    assert math.log(found.high) == pytest.approx(exact.high, abs=0.003)


def test_two_sessions_with_and_without_an_anchor() -> None:
    generator = np.random.default_rng(5)
    first = np.exp(generator.normal(math.log(1.30), 0.01, 40)).tolist()
    second = np.exp(generator.normal(math.log(1.36), 0.01, 60)).tolist()
    anchored = between_sessions(first, second, 0.95, 0, anchored=True)
    seconds = between_sessions(first, second, 0.95, 0, anchored=False)
    assert anchored.ratio == seconds.ratio == pytest.approx(1.36 / 1.30, rel=0.01)
    assert 1.03 < anchored.low < anchored.high < 1.06
    assert seconds.low < 1.01
    assert math.log(seconds.high / anchored.high) == pytest.approx(1.96 * math.sqrt(2) * 0.015, rel=1e-3)
    back = between_sessions(second, first, 0.95, 0, anchored=True)
    assert back.ratio == pytest.approx(1 / anchored.ratio)


@pytest.mark.parametrize("processes", [3, 5, 8])
def test_coverage_when_processes_differ(processes: int) -> None:
    """Of 1,000 samples whose clusters differ by more than their pairs do, about 95% of the intervals contain it."""
    generator = np.random.default_rng(6)
    index = np.arange(40) % processes
    covered = plain = 0
    for trial in range(1000):
        apart = generator.normal(math.log(1.05), 0.015, processes)
        ratios = np.exp(apart[index] + generator.normal(0, 0.014, 40)) * np.where(generator.random(40) < 0.05, 1.15, 1)
        found = ratio_interval(ratios.tolist(), 0.95, trial, processes)
        covered += found.low <= 1.05 <= found.high
        if trial < 100:
            unaware = ratio_interval(ratios.tolist(), 0.95, trial)
            plain += unaware.low <= 1.05 <= unaware.high
    assert 930 <= covered <= 975
    assert plain < 80, "pairs of the same processes are not independent"


def test_clusters_are_those_of_ratio_i_mod_processes() -> None:
    ratios = [1.0, 1.2, 1.0, 1.2, 1.0, 1.2]
    found = ratio_interval(ratios, 0.95, 0, 2)
    assert found.ratio == pytest.approx(math.sqrt(1.2))
    half = stats.t.ppf(0.975, 1) * math.log(1.2) / 2
    assert math.log(found.high / found.ratio) == pytest.approx(half)
    assert ratio_interval(ratios, 0.95, 0, 3).high < 1.2


def test_a_slow_call_in_every_process_moves_little() -> None:
    ratios = [1.0] * 10 + [1.15] * 5 + [1.0] * 5
    assert ratio_interval(ratios, 0.95, 0, 5) == RatioInterval(1.0, 1.0, 1.0)


def test_two_sessions_of_several_processes_each() -> None:
    generator = np.random.default_rng(8)
    alarms = covered = 0
    for trial in range(400):
        sessions = []
        for middle, processes in ((1.30, 5), (1.36, 8)):
            apart = generator.normal(math.log(middle), 0.014, processes)
            sessions.append(np.exp(apart[np.arange(40) % processes] + generator.normal(0, 0.014, 40)).tolist())
        found = between_sessions(*sessions, 0.95, trial, anchored=True, processes=(5, 8))
        covered += found.low <= 1.36 / 1.30 <= found.high
        alarms += found.low > 1.36 / 1.30 + 0.01
    assert 365 <= covered <= 393
    assert alarms <= 4
    old = between_sessions(*sessions, 0.95, 0, anchored=True, processes=(1, 8))
    assert old == between_sessions(*sessions, 0.95, 0, anchored=True), "an old report does not tell its processes"
    same = between_sessions([1.1] * 4, [1.1] * 4, 0.95, 0, anchored=True, processes=(2, 2))
    assert same == RatioInterval(1.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def process_rates() -> list[tuple[simulation.Setting, list[simulation.Rates]]]:
    """A thousand sessions of each kind, whose processes differ by 1%."""
    return simulation.process_rates(1000, seed=0)


def test_what_several_processes_buy(process_rates: list[tuple[simulation.Setting, list[simulation.Rates]]]) -> None:
    found = {
        (setting.processes, setting.pairs, item.step, item.margin): item
        for setting, items in process_rates
        for item in items
    }
    for processes, pairs in ((5, 20), (8, 20), (16, 20), (16, 48)):
        assert found[processes, pairs, 0.0, 0.015].above == 0
        assert found[processes, pairs, 0.0, 0.02].above == 0
    assert found[16, 48, 0.03, 0.015].above >= 950
    assert found[5, 20, 0.05, 0.015].above >= 950
    assert found[5, 20, 0.05, 0.02].above >= 900
    assert found[5, 20, 0.03, 0.015].above < 950, "five processes are not enough for that, and DECIDING.md says so"


def test_the_document_shows_what_processes_buy(
    process_rates: list[tuple[simulation.Setting, list[simulation.Rates]]],
) -> None:
    document = (Path(__file__).parent.parent / "DECIDING.md").read_text()
    hint = "out of date; run python -m gprojci_suite.simulation"
    assert simulation.process_table(process_rates) in document, hint
    assert simulation.with_one_process(250, seed=0) in document, hint


def test_one_sample_is_no_interval() -> None:
    for processes in (1, 2):
        with pytest.raises(ValueError, match="two samples"):
            ratio_interval([1.0], 0.95, 0, processes)


def test_equal_ratios_have_an_interval_of_no_width() -> None:
    assert ratio_interval([1.1] * 20, 0.95, 0) == RatioInterval(*[pytest.approx(1.1)] * 3)


def test_looks_double_up_to_the_cap() -> None:
    assert [next_look(20, 80), next_look(40, 80), next_look(60, 80), next_look(80, 80)] == [40, 80, 80, None]


def test_the_simulation_is_a_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", "--sessions", "4", "--seed", "1"])
    simulation.main()
    printed = capsys.readouterr().out
    processes = 4 * len(simulation.PROCESS_SETTINGS) * len(simulation.PROCESS_MARGINS)
    assert printed.count("of 4 |") == 3 * len(simulation.STEPS) * len(simulation.MARGINS) + processes
    assert "Not interleaved" in printed
