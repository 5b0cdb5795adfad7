"""The command: what it prints, what it writes, and its exit codes."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gprojci_suite import cli
from gprojci_suite.contract import Report
from gprojci_suite.identity import ruler
from gprojci_suite.run import launches, write

TINY = "synthetic:random?heads=1&seq=32&head_dim=16"
FAILING = """
def attention(q, k, v, *, causal, softmax_scale):
    raise RuntimeError("no kernel for this")
"""

UNSTEADY = """
import torch
calls = 0

def attention(q, k, v, *, causal, softmax_scale):
    global calls
    calls += 1
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale)
    return o + (0.01 * calls * o).detach()
"""


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    printed = capsys.readouterr().out
    for text in ("sdpa-math", "emulated-zerosum", "cannot run here: needs a CUDA device", "late-keybias", "rel_err"):
        assert text in printed


def test_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    arguments = ["bench", "--inputs", TINY, "--backends", "emulated-gproj,sdpa-math", "--suites", "accuracy,throughput"]
    assert cli.main([*arguments, "--pairs", "4", "--max-pairs", "8", "--anchor", "sdpa-math", "--json", str(out)]) == 0
    captured = capsys.readouterr()
    assert "repro: gprojci-suite bench" in captured.out
    assert "emulated-gproj" in captured.out
    assert "accuracy emulated-gproj@ruler" in captured.err
    report = json.loads(out.read_text())
    assert Report.from_json(report).backends
    assert report["schema_version"] == 1
    assert report["environment"]["device"] == "cpu"
    first = report["accuracy"]["slices"][0]
    assert {"backend", "input", "slice", "tensor", "rel_err", "vanishing"} <= first.keys()
    assert {(s["backend"], s["tensor"]) for s in report["accuracy"]["summary"]} == {
        (backend, tensor) for backend in ("emulated-gproj", "sdpa-math") for tensor in ("o", "dq", "dk", "dv")
    }
    assert {check["process"] for check in report["throughput"]["clock"]} == {0}
    assert {c["pass"] for c in report["throughput"]["comparisons"]} == {"forward", "backward", "forward_backward"}
    assert report["repro"].startswith("gprojci-suite bench --backends emulated-gproj,sdpa-math")


def test_the_repro_line_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shlex

    assert cli.main(["bench", "--inputs", TINY, "--backends", "sdpa-math", "--json", str(tmp_path / "a.json")]) == 0
    line = next(text for text in capsys.readouterr().out.splitlines() if text.startswith("repro: "))
    words = shlex.split(line.removeprefix("repro: "))[1:]
    assert cli.main([*words, "--json", str(tmp_path / "b.json")]) == 0
    first, second = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert first["accuracy"] == second["accuracy"]
    assert first["repro"] == second["repro"]


def test_bench_in_several_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    arguments = ["bench", "--suites", "throughput", "--shapes", "1x1x64x16", "--backends", "sdpa-math,emulated-fa3"]
    arguments += ["--pairs", "5", "--max-pairs", "5", "--processes", "2", "--json", str(out)]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "5 in 2 processes" in printed
    assert "--processes 2" in printed.splitlines()[-2]
    found = Report.loads(out.read_text()).throughput
    assert found is not None
    assert {(c.pairs, c.processes) for c in found.comparisons} == {(5, 2)}
    assert {len(m.seconds) for m in found.measurements} == {5}


def test_only_what_is_compared_runs_in_several_processes() -> None:
    def processes(*arguments: str) -> dict[str, int]:
        options = cli._parser().parse_args(["bench", "--shapes", "1x1x64x16", "--processes", "3", *arguments])
        return {launch.label: launch.processes for launch in launches(cli.bench_spec(options))}

    timed = ["--suites", "throughput", "--backends"]
    assert processes(*timed, "sdpa-math,fp32") == {"sdpa-math@ruler": 3, "fp32@ruler": 3}
    assert processes(*timed, "sdpa-math") == {"sdpa-math@ruler": 1}
    assert processes(*timed, "mine", "--backend-entry", "mine=a:b") == {"mine@head": 3, "mine@head (control)": 3}
    assert set(processes("--suites", "step", "--step-models", "tiny", "--backends", "sdpa-math,fp32").values()) == {1}
    options = cli._parser().parse_args(["bench", "--device", "cuda", "--backends", "fa3", "--inputs", TINY])
    assert options.processes is None
    timing = cli._parser().parse_args(["bench", "--device", "cuda", *timed, "fa3,fp32", "--shapes", "1x1x64x16"])
    assert cli.bench_spec(timing).throughput.processes == 5  # type: ignore[union-attr]


def test_a_subject_that_differs_from_run_to_run_shows_its_spread(tmp_path: Path) -> None:
    (tmp_path / "unsteady.py").write_text(UNSTEADY)
    out = tmp_path / "out.json"
    arguments = ["bench", "--inputs", TINY, "--backend-entry", "unsteady=unsteady:attention", "--json", str(out)]
    command = [sys.executable, "-m", "gprojci_suite", *arguments, "--backends", "unsteady,sdpa-math"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=200)
    summary = json.loads(out.read_text())["accuracy"]["summary"]
    spreads = {(line["backend"], line["tensor"]): line["spread"] for line in summary}
    assert spreads["unsteady", "o"] > 0
    assert spreads["unsteady", "dv"] == 0.0, "its gradient repeats"
    assert spreads["sdpa-math", "o"] is None, "peers run once"


def test_a_failing_backend_is_exit_1_and_its_report_is_written(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILING)
    command = [sys.executable, "-m", "gprojci_suite", "bench", "--inputs", TINY]
    command += ["--backend-entry", "mine=mine:attention", "--backends", "mine,sdpa-math", "--json", "out.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert "mine@head: runtime_error" in done.stdout
    assert "no kernel for this" in done.stdout
    report = Report.loads((tmp_path / "out.json").read_text())
    assert {entry.backend: entry.status for entry in report.backends} == {"mine": "runtime_error", "sdpa-math": "ok"}
    assert report.accuracy is not None
    assert {item.backend for item in report.accuracy.slices} == {"sdpa-math"}


def test_run_writes_a_report_even_when_the_subject_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("attention = None")
    subject = {"backend": "mine", "entry": "mine:attention", "python": sys.executable, "site": str(tmp_path)}
    subject |= {"commit": "c", "build_key": "k", "build_seconds": 12.5}
    spec = {
        "schema_version": 1,
        "device": "cpu",
        "seed": 0,
        "suites": ["accuracy"],
        "subjects": [{**subject, "revision": revision} for revision in ("head", "base")],
        "peers": ["emulated-fa3"],
        "anchor": None,
        "inputs": [TINY],
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert cli.main(["run", str(tmp_path / "spec.json"), str(tmp_path / "report.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(" s  accuracy emulated-fa3@ruler" in line and line.endswith("3/3 ok") for line in lines)
    report = Report.loads((tmp_path / "report.json").read_text())
    statuses = {(entry.backend, entry.revision): entry.status for entry in report.backends}
    assert statuses == {
        ("mine", "head"): "build_error",
        ("mine", "base"): "build_error",
        ("emulated-fa3", "ruler"): "ok",
    }
    assert report.throughput is None
    assert (report.subjects[0].commit, report.subjects[0].build_seconds) == ("c", 12.5)
    started = {entry.backend: entry.start_seconds for entry in report.backends}
    assert started["mine"] is None
    assert 0 < (started["emulated-fa3"] or 0) < report.duration_seconds
    assert 0 < (report.working_seconds or 0) < report.duration_seconds - (started["emulated-fa3"] or 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--backends", "fa9"], "fa9: no such peer"),
        (["--backends", ""], "names nothing"),
        (["--backends", "sdpa-math", "--inputs", "nothing"], "no such input set"),
        (["--backends", "sdpa-math", "--suites", "speed"], "--suites speed"),
        (["--backend-entry", "mine"], "NAME=module:callable"),
        (["--backends", "sdpa-math", "--suites", "throughput", "--shapes", "1x2"], "shape"),
        (["--backends", "sdpa-math", "--suites", "throughput", "--pairs", "1"], "pairs"),
        (["--backends", "sdpa-math", "--suites", "throughput", "--processes", "17"], "between 1 and 16"),
        (["--backends", "sdpa-math", "--suites", "throughput", "--processes", "21", "--pairs", "20"], "between 1"),
        (["--backends", "sdpa-math", "--suites", "throughput", "--processes", "5", "--pairs", "4"], "above pairs"),
        (["--backends", "sdpa-math", "--suites", "step"], "needs --step-models"),
        (
            ["--backends", "sdpa-math", "--suites", "step", "--step-models", "7b"],
            "known are 450m, 450m-d128, tiny, 450m.compiled",
        ),
        (["--backends", "sdpa-math", "--inputs", ""], "needs --inputs"),
    ],
)
def test_usage_errors_are_one_line(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--inputs", TINY, *arguments]) == 2
    printed = capsys.readouterr().err.strip()
    assert problem in printed
    assert "\n" not in printed


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 9}'])
def test_a_bad_spec_is_a_usage_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(text)
    assert cli.main(["run", str(tmp_path / "spec.json"), str(tmp_path / "report.json")]) == 2
    assert not (tmp_path / "report.json").exists()


def test_machine_faults(tmp_path: Path) -> None:
    assert cli.main(["run", str(tmp_path / "missing.json"), str(tmp_path / "report.json")]) == 3


def test_no_device_is_a_machine_fault(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["bench", "--inputs", TINY, "--backends", "sdpa-math", "--device", "cuda"]) == 3
    assert "no CUDA device" in capsys.readouterr().err


def test_the_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    assert cli.main(["bench", "--inputs", TINY, "--backends", "sdpa-math", "--json", str(out)]) == 0
    before = out.read_bytes()

    def full(self: Path, target: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write(Report.loads(out.read_text()), out)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_the_network_variable_is_checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GPROJCI_NETWORK", "open")
    assert cli.main(["bench", "--inputs", TINY, "--backends", "sdpa-math"]) == 3
    assert "GPROJCI_NETWORK" in capsys.readouterr().err


def test_the_ruler_knows_its_revision() -> None:
    found = ruler()
    assert found.version == "0.1.0"
    assert len(found.revision.removeprefix("package-")) == 40


def test_every_option_is_in_the_readme() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()

    def options(parser: argparse.ArgumentParser) -> set[str]:
        found = {option for action in parser._actions for option in action.option_strings}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for child in action.choices.values():
                    found |= options(child)
        return found

    missing = {option for option in options(cli._parser()) - {"-h", "--help"} if f"`{option}" not in readme}
    assert not missing
