"""The search for the first bad commit, alone: with commits that cannot be built, and measurements that are unsure."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gprojci_service.bisections import evidence
from gprojci_service.bisections.search import Conclude, Finding, Measure, NotWorse, next_step
from gprojci_suite.contract.report import Report


def search(commits: int, answer, max_effort: int = 8) -> tuple[Conclude | NotWorse, list[Finding]]:
    """Runs a search whose measurements are what `answer(position, effort)` says."""
    findings: list[Finding] = []
    while isinstance(step := next_step(commits, findings, max_effort), Measure):
        assert 0 < step.position < commits
        assert 1 <= step.effort <= max_effort
        asked = (step.position, step.effort)
        assert asked not in [(finding.position, finding.effort) for finding in findings], "nothing is measured twice"
        findings.append(Finding(step.position, answer(step.position, step.effort), step.effort))
    return step, findings


@given(st.data())
def test_the_range_that_remains_holds_the_first_bad_commit_and_cannot_be_narrowed(data):
    commits = data.draw(st.integers(2, 80))
    first_bad = data.draw(st.integers(1, commits - 1))
    between = st.integers(1, commits - 1).filter(lambda position: position != commits - 1)
    unbuildable = data.draw(st.sets(between, max_size=20)) if commits > 2 else set()
    needs = {position: data.draw(st.sampled_from([1, 2, 4, 8, 16])) for position in range(1, commits - 1)}
    needs[commits - 1] = 1

    def answer(position: int, effort: int) -> str:
        if position in unbuildable:
            return "skipped"
        if effort < needs[position]:
            return "unsure"
        return "bad" if position >= first_bad else "good"

    step, findings = search(commits, answer)
    assert isinstance(step, Conclude)
    assert step.first <= first_bad <= step.last
    words = {finding.position: finding.word for finding in findings}
    assert step.first == 1 or words[step.first - 1] == "good"
    assert words[step.last] == "bad"
    assert all(words[position] in ("skipped", "unsure") for position in range(step.first, step.last))


@pytest.mark.parametrize(("commits", "most"), [(2, 1), (3, 2), (65, 7), (1025, 11)])
def test_it_halves_the_range(commits, most):
    for first_bad in range(1, commits, max(1, commits // 50)):
        step, findings = search(commits, lambda position, _, bad=first_bad: "bad" if position >= bad else "good")
        assert (step, len(findings) <= most) == (Conclude(first_bad, first_bad), True)


def test_a_long_stretch_that_cannot_be_built_is_jumped_over():
    def answer(position: int, _: int) -> str:
        return "skipped" if 30 <= position < 70 else "bad" if position >= 80 else "good"

    step, findings = search(101, answer)
    assert step == Conclude(80, 80)
    assert len(findings) < 12


def test_an_unsure_commit_is_measured_with_twice_the_pairs_up_to_the_cap():
    asked = []

    def answer(position: int, effort: int) -> str:
        asked.append((position, effort))
        return "bad" if position == 4 else "unsure" if position == 2 else "bad" if position > 2 else "good"

    step, _ = search(5, answer, max_effort=4)
    assert asked[:4] == [(4, 1), (2, 1), (2, 2), (2, 4)]
    assert step == Conclude(2, 3), "2 stays unsure, 1 is good and 3 is bad"


@pytest.mark.parametrize("word", ["good", "skipped", "unsure"])
def test_without_a_bad_commit_there_is_nothing_to_find(word):
    step, findings = search(9, lambda *_: word)
    assert isinstance(step, NotWorse)
    assert [finding.position for finding in findings] == [8] * (4 if word == "unsure" else 1)


@pytest.mark.parametrize(
    ("values", "word"),
    [((0.002, 0.002), "good"), ((0.004, 0.002), "bad"), ((math.inf, 0.002), "bad"), ((0.002, 0.0), "bad")],
)
def test_errors_are_judged_by_their_ratio(make_report, values, word):
    report = Report.from_json(make_report(*[value if math.isfinite(value) else "Infinity" for value in values]))
    (found,) = evidence.observations(report, "dq_error")
    assert evidence.word(found, 1.4) == word


def test_the_spread_of_a_session_makes_an_error_unsure(make_report):
    report = make_report(0.0029, 0.002)
    for line in report["accuracy"]["summary"]:
        line["spread"] = 0.1
    (found,) = evidence.observations(Report.from_json(report), "dq_error")
    assert (round(found.ratio, 3), evidence.word(found, 1.4)) == (1.45, "unsure")


def test_times_are_judged_by_the_interval_of_head_over_base(make_report):
    (found,) = evidence.observations(Report.from_json(make_report(time=(1.04, 1.08))), "forward_backward_seconds")
    assert [evidence.word(found, limit) for limit in (1.03, 1.06, 1.09)] == ["bad", "unsure", "good"]
    assert evidence.observations(Report.from_json(make_report(time=None)), "forward_backward_seconds") == []


@pytest.mark.parametrize(("head", "word"), [(1009, "good"), (1011, "bad"), (500, "good")])
def test_memory_is_judged_by_its_peak_over_the_bases(make_report, head, word):
    report = make_report()
    for measurement, peak in zip(report["throughput"]["measurements"], (head, 1000), strict=True):
        measurement["peak_memory_bytes"] = peak
    (found,) = evidence.observations(Report.from_json(report), "peak_memory")
    assert (found.ratio, found.low, found.high) == (head / 1000,) * 3
    assert evidence.word(found, evidence.first_threshold("peak_memory")) == word
    assert evidence.observations(Report.from_json(make_report()), "peak_memory") == [], "a CPU tells nothing of it"
