"""A run that is ended loses nothing: by its seconds, by a signal, in the middle of a suite or before the first."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gprojci_suite import cli
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.spec import RunSpec, ThroughputSpec
from gprojci_suite.ending import Ending
from gprojci_suite.run import run

TINY = "synthetic:random?heads=1&seq=32&head_dim=16"
BACKENDS = ("sdpa-math", "fp32")
BENCH = ["bench", "--inputs", TINY, "--backends", ",".join(BACKENDS), "--suites", "accuracy,throughput"]


class AfterLine(Ending):
    """Ends the session once a line of its progress begins with certain words."""

    def __init__(self, words: str) -> None:
        super().__init__(1e9)
        self.words = words
        self.lines: list[str] = []

    @property
    def reason(self) -> str | None:
        return "time was up" if any(line.startswith(self.words) for line in self.lines) else None


def spec_of(*suites: str) -> RunSpec:
    return RunSpec(
        schema_version=1,
        device="cpu",
        seed=0,
        suites=suites,  # type: ignore[arg-type]
        subjects=(),
        peers=BACKENDS,
        anchor=BACKENDS[0],
        inputs=(TINY,),
        throughput=ThroughputSpec(("1x1x64x16", "1x1x32x16"), pairs=10, max_pairs=10, step_models=("tiny",)),
    )


def accuracy_of(report: Report) -> set[tuple[str, str]]:
    return {(line.backend, line.tensor) for line in report.accuracy.summary} if report.accuracy else set()


EVERYTHING = {(backend, tensor) for backend in BACKENDS for tensor in ("o", "dq", "dk", "dv")}


def test_sigterm_in_the_middle_of_timing(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "gprojci_suite", *BENCH, "--json", str(out), "--pairs", "5000"]
    command += ["--max-pairs", "5000", "--processes", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith(" 10/5000\n"):
                break
        process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        printed, progress = process.communicate(timeout=60)
    assert time.monotonic() - begin < 30
    assert process.returncode == 143
    assert "SIGTERM ended the session" in progress
    assert f"report: {out}" in printed
    report = Report.loads(out.read_text())
    assert accuracy_of(report) == EVERYTHING
    for entry in report.backends:
        assert entry.status == "timeout"
        assert (entry.detail or "").startswith("SIGTERM ended the session before throughput of ")
    assert report.throughput is not None
    rounds = {len(item.seconds) for item in report.throughput.measurements}
    assert len(rounds) == 1
    assert 10 <= rounds.pop() < 5000
    assert {item.pairs for item in report.throughput.comparisons} == {len(report.throughput.measurements[0].seconds)}
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_seconds_that_are_over_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert cli.main([*BENCH, "--seconds", "0.01", "--json", str(out)]) == cli.BACKEND_FAILED
    assert "throughput skipped: the session's 0.01 s were over" in capsys.readouterr().err
    report = Report.loads(out.read_text())
    assert {entry.status for entry in report.backends} == {"timeout"}
    assert (report.backends[0].detail or "").startswith("the session's 0.01 s were over before start")
    assert (report.accuracy, report.throughput) == (None, None)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_seconds_are_checked(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*BENCH, "--seconds", seconds]) == cli.USAGE
    assert "limits.session_seconds: must be a finite number above zero" in capsys.readouterr().err


def test_what_is_finished_stays_and_what_was_not_reached_is_named() -> None:
    ending = AfterLine("throughput 1x1x64x16.causal.bfloat16 5/10")
    report = run(spec_of("accuracy", "throughput", "step"), ending.lines.append, ending)
    assert accuracy_of(report) == EVERYTHING
    assert report.throughput is not None
    assert {(item.case, len(item.seconds)) for item in report.throughput.measurements} == {
        ("1x1x64x16.causal.bfloat16", 5)
    }
    assert report.step is None
    for entry in report.backends:
        assert entry.status == "timeout"
        assert entry.detail == "time was up before throughput of 1x1x64x16.causal.bfloat16 was done"
    assert ending.lines[-3:] == [
        "throughput 1x1x64x16.causal.bfloat16 ended after 5/10 rounds: time was up",
        "throughput 1x1x32x16.causal.bfloat16 skipped: time was up",
        "step skipped: time was up",
    ]
    assert Report.loads(report.dumps()) == report


def test_who_has_nothing_left_to_do_is_fine() -> None:
    ending = AfterLine("accuracy fp32")
    report = run(replace(spec_of("accuracy"), peers=("fp32",), anchor=None), ending.lines.append, ending)
    assert accuracy_of(report) == {("fp32", tensor) for tensor in ("o", "dq", "dk", "dv")}
    assert [entry.status for entry in report.backends] == ["ok"]


TWICE = """
import signal
from gprojci_suite.ending import Ending
with Ending().on_signals() as ending:
    assert ending.reason is None and ending.exit_status is None
    signal.raise_signal(signal.SIGINT)
    print(ending.reason, ending.exit_status, flush=True)
    signal.raise_signal(signal.SIGINT)
    print("still here")
"""


def test_the_second_signal_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "SIGINT ended the session 130\n")


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Ending(5.0).on_signals() as ending:
        assert signal.getsignal(signal.SIGTERM) != before
        assert ending.reason is None
    assert signal.getsignal(signal.SIGTERM) == before
