"""Two reports: what is worse, what decides, what is refused by name."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gprojci_suite import cli

CASE = "1x4x1024x64.causal.bfloat16"


def line(backend: str, revision: str, tensor: str, error: float | str, **changes: Any) -> dict[str, Any]:
    entry = {"backend": backend, "revision": revision, "input": "late-keybias", "tensor": tensor, "median": error}
    entry |= {"worst": error, "worst_slice": "L1.b0.h0", "slices": 4, "vanishing": 0, "nonfinite": 0, "spread": None}
    return entry | changes


def timed(backend: str, revision: str, seconds: float, noise: Any) -> dict[str, Any]:
    entry = {"backend": backend, "revision": revision, "case": CASE, "pass": "forward_backward"}
    values = (seconds * noise).tolist()
    return entry | {"seconds": values, "median_seconds": float(np.median(values))}


def over_anchor(backend: str, revision: str, ratio: float, noise: Any) -> dict[str, Any]:
    entry = {"backend": backend, "revision": revision, "against_backend": "sdpa-math", "against_revision": "ruler"}
    entry |= {"case": CASE, "pass": "forward_backward", "pairs": len(noise), "ratio": ratio, "low": ratio}
    return entry | {"high": ratio, "confidence": 0.95, "ratios": (ratio * noise).tolist(), "control": False}


def make(
    error: float = 0.002, ratio: float = 1.3, seed: int = 0, anchored: bool = True, hardware: str = "h200"
) -> dict[str, Any]:
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.01, 40))
    environment = {"device": "cuda", "device_name": "NVIDIA H200", "hardware": hardware, "platform": "Linux"}
    environment |= {"python": "3.11", "torch": "2.13.0", "cuda": None, "driver": None, "cpu_count": 2, "threads": 2}
    environment |= {"memory_bytes": 1, "packages": {}, "clocks": None, "throttle_reasons": [], "network": "isolated"}
    known = {"input": "late-keybias", "content_hash": "sha256:aa", "causal": True, "softmax_scale": 0.125}
    known |= {"dtype": "bfloat16", "layers": [], "statistics": [], "provenance": {}}
    roles = (("gproj", "head", "subject"), ("gproj", "base", "subject"), ("sdpa-math", "ruler", "anchor"))
    subjects = [("gproj", "head"), ("gproj", "base")]
    return {
        "schema_version": 1,
        "created_at": "2026-01-02T03:04:05+00:00",
        "duration_seconds": 1.5,
        "seed": 0,
        "repro": "gprojci-suite bench",
        "ruler": {"version": "0.1.0", "revision": "package-0"},
        "subjects": [],
        "environment": environment,
        "backends": [
            {"backend": b, "revision": r, "role": role, "status": "ok", "detail": None} for b, r, role in roles
        ],
        "inputs": [known],
        "accuracy": {
            "slices": [],
            "summary": [
                line("gproj", "head", "dq", error),
                line("gproj", "head", "dk", 0.014),
                line("gproj", "base", "dq", 5.0 * error),
                line("sdpa-math", "ruler", "dq", 0.0017),
            ],
        },
        "throughput": {
            "measurements": [timed(b, r, 0.01 * ratio, noise) for b, r in subjects]
            + [timed("sdpa-math", "ruler", 0.01, noise)],
            "comparisons": [over_anchor(b, r, ratio, noise) for b, r in subjects] if anchored else [],
        },
    }


def with_steps(
    report: dict[str, Any], seconds: float, ratio: float, seed: int, anchored: bool = True
) -> dict[str, Any]:
    """A copy with training steps of head."""
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.003, 40))
    result = copy.deepcopy(report)
    trained = {"backend": "gproj", "revision": "head", "model": "450m", "seconds": (seconds * noise).tolist()}
    trained |= {"median_seconds": seconds, "attention_share": None, "peak_memory_bytes": None, "loss": 5.0}
    compared = over_anchor("gproj", "head", ratio, noise) | {"case": "450m", "pass": "step"}
    result["step"] = {"measurements": [trained], "comparisons": [compared] if anchored else []}
    return result


@pytest.mark.parametrize(
    ("ratio", "anchored", "code", "row"),
    [
        (1.06, True, 1, "worse gproj@head 450m step over sdpa-math 1.020 1.060"),
        (1.03, True, 0, "same gproj@head 450m step over sdpa-math 1.020 1.030"),
        (0.97, True, 0, "better gproj@head 450m step over sdpa-math 1.020 0.970"),
        (1.10, False, 1, "worse gproj@head 450m step seconds"),
        (1.05, False, 0, "cannot tell gproj@head 450m step seconds"),
    ],
)
def test_steps_are_compared(
    ratio: float, anchored: bool, code: int, row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = with_steps(make(), 0.112, 1.02, 1, anchored)
    second = with_steps(make(), 0.112 * (1 if anchored else ratio), ratio, 1, anchored)
    assert run(tmp_path, first, second, "--margin", "0.02") == code
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith(row) for line in lines), lines


def test_a_step_is_not_compared_with_a_kernel_or_with_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, make(), with_steps(make(), 0.1, 9.0, 0)) == 0
    assert "450m" not in capsys.readouterr().out


def test_processes_that_differ_widen_the_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def spread(ratio: float, processes: int | None) -> dict[str, Any]:
        report = make(ratio=ratio)
        apart = np.tile([0.97, 1.0, 1.03, 0.98, 1.02], 8)
        compared = report["throughput"]["comparisons"][0]
        compared["ratios"] = (ratio * apart).tolist()
        if processes is not None:
            compared["processes"] = processes
        return report

    assert run(tmp_path, spread(1.3, 5), spread(1.36, 5)) == 0
    assert "cannot tell" in capsys.readouterr().out.splitlines()[2]
    assert run(tmp_path, spread(1.3, 5), spread(1.5, 5)) == 1
    assert run(tmp_path, spread(1.3, None), spread(1.5, 5)) == 1, "a report from before processes were counted"


def run(tmp_path: Path, first: dict[str, Any], second: dict[str, Any], *options: str) -> int:
    for name, report in (("a.json", first), ("b.json", second)):
        (tmp_path / name).write_text(json.dumps(report))
    return cli.main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), *options])


def changed(report: dict[str, Any], **lines: Any) -> dict[str, Any]:
    """A copy whose first accuracy summary has other values."""
    result = copy.deepcopy(report)
    result["accuracy"]["summary"][0] |= lines
    return result


def test_a_report_is_the_same_as_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, make(), make(seed=1)) == 0
    printed = capsys.readouterr().out
    assert "0 worse, 0 cannot tell, 0 better, 5 same" in printed
    assert "gproj@base" not in printed
    assert "(same)" in printed, "the anchor is shown and does not decide"


@pytest.mark.parametrize(
    ("second", "code", "first_row"),
    [
        (make(ratio=1.4), 1, "worse"),
        (make(ratio=1.2), 0, "better"),
        (make(ratio=1.31), 0, "same"),
        (make(error=0.0022), 1, "worse"),
        (make(error=0.001), 0, "better"),
        (make(ratio=1.45, anchored=False), 1, "worse"),
        (make(ratio=1.36, anchored=False), 0, "cannot tell"),
    ],
)
def test_verdicts(
    second: dict[str, Any], code: int, first_row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, make(), second) == code
    assert capsys.readouterr().out.splitlines()[2].startswith(first_row)


def test_what_matters_most_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, make(), make(error=0.02, ratio=1.4)) == 1
    rows = capsys.readouterr().out.splitlines()[2:]
    assert "dq median error" in rows[0]
    assert "0.2%" in rows[0]
    assert "2%" in rows[0]
    assert "10.000" in rows[0]
    assert "time over sdpa-math" in rows[2]
    assert rows[3].startswith("same")


@pytest.mark.parametrize(("spread", "code"), [(0.0, 1), (0.06, 0)])
def test_errors_are_widened_by_the_run_to_run_spread(spread: float, code: int, tmp_path: Path) -> None:
    assert run(tmp_path, make(), changed(make(), median=0.0022, worst=0.0022, spread=spread)) == code


def test_margins_are_options(tmp_path: Path) -> None:
    assert run(tmp_path, make(), make(ratio=1.4), "--margin", "0.1") == 0
    assert run(tmp_path, make(), make(error=0.0022), "--error-margin", "0.2") == 0
    assert run(tmp_path, make(), make(), "--margin", "-1") == 2


def test_nan_and_a_new_failure_are_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, make(), changed(make(), median="NaN", worst="NaN", nonfinite=7)) == 1
    assert "7 NaN or Inf" in capsys.readouterr().out
    failed = make()
    failed["backends"][0] |= {"status": "runtime_error", "detail": "segfault"}
    assert run(tmp_path, make(), failed) == 1
    assert "ok → runtime_error" in capsys.readouterr().out
    assert run(tmp_path, failed, make()) == 0


def test_slices_that_all_vanish_cannot_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = changed(make(), median="NaN", worst="NaN", worst_slice="", vanishing=4)
    assert run(tmp_path, nothing, nothing) == 0
    assert "2 cannot tell" in capsys.readouterr().out


def test_peers_decide_where_there_is_no_subject(tmp_path: Path) -> None:
    reports = [make(), make()]
    for report in reports:
        report["backends"] = report["backends"][2:]
        report["accuracy"]["summary"] = report["accuracy"]["summary"][3:]
        report["throughput"] = None
    reports[1]["accuracy"]["summary"][0]["median"] = 0.1
    assert run(tmp_path, *reports) == 1


def test_differences_that_are_no_hindrance_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = make()
    other["ruler"]["revision"] = "package-1"
    other["backends"].append(
        {"backend": "fa3", "revision": "ruler", "role": "peer", "status": "unsupported", "detail": "needs CUDA"}
    )
    assert run(tmp_path, make(), other) == 0
    printed = capsys.readouterr().out
    assert "note: rulers differ: package-0 and package-1" in printed
    assert "note: only in B: fa3" in printed


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], second: dict[str, Any]) -> str:
    assert run(tmp_path, make(), second) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_what_must_not_be_compared_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "A was measured on h200, B on cpu-x86-64" in refused(tmp_path, capsys, make(hardware="cpu-x86-64"))
    other = make()
    other["inputs"][0]["content_hash"] = "sha256:bb"
    assert "late-keybias: A measured sha256:aa, B measured sha256:bb" in refused(tmp_path, capsys, other)
    nothing = make()
    nothing |= {"accuracy": None, "throughput": None}
    assert "in common" in refused(tmp_path, capsys, nothing)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\xff"])
def test_what_is_no_report_is_a_usage_error(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    assert cli.main(["compare", str(tmp_path / "a.json"), str(tmp_path / "missing.json")]) == 2
    assert "not a readable report" in capsys.readouterr().err
