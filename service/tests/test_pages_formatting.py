"""How the pages word numbers, times and untrusted text."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from gprojci_service.pages import formatting
from gprojci_service.pages.drawings import embedded


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0035, "0.35%"),
        (44.8, "4,480%"),
        (0.000001, "0.0001%"),
        (1e-9, "1.0e-07%"),
        (0, "0%"),
        (float("nan"), "NaN"),
        (float("inf"), "∞"),
        (None, "–"),
        (0.0123456, "1.23%"),
    ],
)
def test_fraction(value: float | None, text: str) -> None:
    assert formatting.fraction(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.00044, "440 µs"), (0.0025, "2.50 ms"), (0.0417, "41.7 ms"), (1.5, "1.50 s"), (None, "–")]
)
def test_seconds(value: float | None, text: str) -> None:
    assert formatting.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3.21, "3.2 s"), (59.4, "59 s"), (192, "3 min 12 s"), (180, "3 min"), (7300, "2 h 1 min")]
)
def test_duration(value: float, text: str) -> None:
    assert formatting.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0432, "1.043×"), (2.897, "2.90×"), (27.44, "27.4×"), (21333.3, "21,300×"), (float("inf"), "∞×")],
)
def test_ratio(value: float, text: str) -> None:
    assert formatting.ratio(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (3.14159, "3.14"),
        (11243.7, "11,244"),
        (4096.0, "4,096"),
        (2.24109e17, "2.24e+17"),
        (10**12, "1,000,000,000,000"),
        (math.inf, "∞"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert formatting.number(value) == text


def test_signed_percent() -> None:
    assert (formatting.signed_percent(0.043), formatting.signed_percent(-0.02)) == ("+4.3%", "−2%")
    assert [formatting.signed_percent(one) for one in (0.00392, 0.123456, 0.00001)] == ["+0.39%", "+12.3%", "+0.001%"]


def test_relative_times_keep_the_absolute_one() -> None:
    moment = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
    text = formatting.ago(moment, now=moment + timedelta(hours=3, minutes=10))
    assert text == '<time datetime="2026-01-05T10:00:00+00:00" title="2026-01-05 10:00:00 UTC">3 hours ago</time>'


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r20%\r100%", "100%"),
        ("line\r\nnext", "line\nnext"),
        ("a\x00b\x08c\x9b31m", "abc31m"),
        ("safe\u202egnp.exe", "safegnp.exe"),
        ("tab\tstays", "tab\tstays"),
        (None, ""),
    ],
)
def test_untrusted_text_loses_what_a_terminal_would_obey(raw: str | None, text: str) -> None:
    assert formatting.clean(raw) == text


def test_json_cannot_end_its_script() -> None:
    assert "</script>" not in embedded('{"a": "</script><!--"}')
    assert "\\u003c/script>" in embedded('{"a": "</script>"}')


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("dq_error", "dQ error, median"),
        ("dk_error_worst", "dK error, worst slice"),
        ("forward_backward_ratio_anchor", "forward + backward time relative to the anchor"),
        ("forward_seconds", "forward time"),
    ],
)
def test_metrics_have_words(key: str, text: str) -> None:
    assert formatting.metric(key) == text


def test_flops_and_shares_keep_a_digit_that_says_something() -> None:
    assert [formatting.flops(one) for one in (742.0, 0.0027)] == ["742 TFLOP/s", "2.7 GFLOP/s"]
    assert [formatting.share(one) for one in (0.42, 0.0067)] == ["42%", "0.7%"]


def test_keys_of_metrics_in_a_sentence_are_spelled_out() -> None:
    said = "a1b2 is the first commit whose dq_error is worse (dq_error_ceiling, forward_backward_seconds)"
    assert formatting.spelled(said) == (
        "a1b2 is the first commit whose dQ error, median is worse (dq_error_ceiling, forward + backward time)"
    )
