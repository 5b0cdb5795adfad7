"""The check against what an H200 printed: its table, its tolerance, its outcomes and its exit codes."""

import dataclasses
import math

import pytest

from gprojci_suite import cli, inputs, peers, reproduce
from gprojci_suite.contract.report import Report
from gprojci_suite.progress import ProgressBar


@pytest.fixture(scope="module")
def measured() -> tuple[Report, list[reproduce.Check]]:
    """The rows of torch's math backend, measured here."""
    import sys

    rows = reproduce.choose(reproduce.expected(), ["sdpa-math"])
    with ProgressBar(sys.stderr) as bar:
        return reproduce.measure(rows, "cpu", 120.0, bar.step)


def test_the_table_covers_every_bundled_head_once_per_backend() -> None:
    rows = reproduce.expected()
    heads = {
        (name, layer, head)
        for name in inputs.bundled_names()
        for layer, kept in reproduce._kept_heads(name).items()
        for head in kept
    }
    backends = {row.backend for row in rows}
    assert backends == {"fa3", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient", "sdpa-math", "fp32-tf32", "fp32", "flex"}
    assert backends <= set(peers.names())
    assert len(rows) == len(heads) * len(backends)
    assert {(row.capture, row.layer, row.head) for row in rows} == heads


def test_tolerance() -> None:
    worst, second = (row for row in reproduce.expected() if (row.layer, row.backend) == ("L1", "fa3") and row.head < 2
                     and row.capture == "late-keybias")  # fmt: skip
    assert worst.within("dq", 4130 * 1.14)
    assert not worst.within("dq", 4130 * 1.16)
    assert second.within("dq", 97.1 * 1.04)
    assert not second.within("dq", 97.1 * 1.06)
    assert second.within("o", 0.166 + 0.049)
    assert not second.within("o", 0.166 - 0.051)
    assert not second.within("o", math.nan)


def test_torchs_math_reproduces_anywhere(measured: tuple[Report, list[reproduce.Check]]) -> None:
    _, checks = measured
    assert len(checks) == 11
    assert {check.state for check in checks} == {"ok"}
    assert reproduce.passed(checks)


def test_a_value_that_moved_is_off(measured: tuple[Report, list[reproduce.Check]]) -> None:
    report, _ = measured
    rows = [dataclasses.replace(row, percent={**row.percent, "dk": 2 * row.percent["dk"]}) if row.head == 3 else row
            for row in reproduce.choose(reproduce.expected(), ["sdpa-math"])]  # fmt: skip
    checks = reproduce.compare(report, rows)
    assert [(c.row.head, c.reason) for c in checks if c.state == "off"] == [(3, "dk")]
    assert not reproduce.passed(checks)


def test_a_failed_backend_fails_and_an_unsupported_one_does_not(
    measured: tuple[Report, list[reproduce.Check]],
) -> None:
    report, _ = measured
    rows = reproduce.choose(reproduce.expected(), ["sdpa-math", "fa3"])
    for status, state, passed in (("runtime_error", "failed", False), ("unsupported", "not checked", True)):
        failed = dataclasses.replace(report.backends[0], backend="fa3", status=status, detail="why\nmore")
        checks = reproduce.compare(dataclasses.replace(report, backends=(*report.backends, failed)), rows)
        found = [check for check in checks if check.row.backend == "fa3"]
        assert {(c.state, c.reason) for c in found} == {(state, f"{status}: why")}
        assert reproduce.passed(checks) is passed
    assert not reproduce.passed(found), "nothing was checked"


def test_the_command_says_what_a_cpu_cannot_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "--backends", "sdpa-math,fa3"]) == 0
    printed = capsys.readouterr().out
    assert "fa3: 11 rows not checked: measured on a GPU" in printed
    assert "22 rows: 11 not checked, 11 ok" in printed
    assert cli.main(["reproduce", "--backends", "fa3"]) == 1
    assert cli.main(["reproduce", "--backends", "fa4"]) == 2
    assert "nothing is expected of it" in capsys.readouterr().err
    assert cli.main(["reproduce", "--call-seconds", "0"]) == 2
