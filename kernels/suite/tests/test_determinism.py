"""Repeats: the same bits, the spread of what differs, and the keyword `deterministic`."""

import json
import sys
from pathlib import Path

import pytest
import torch

from gprojci_suite import cli
from gprojci_suite.child import takes_deterministic
from gprojci_suite.contract import ContractError, Report, codec
from gprojci_suite.contract.determinism import Repeatability
from gprojci_suite.determinism import Repeats

TINY = "synthetic:random?heads=1&seq=32&head_dim=16"
GOOD = "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale)"
SUBJECTS = f"""
import torch
calls = 0

class Shaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        global calls
        calls += 1
        return grad * (1 + 0.25 * (calls % 2))

def steady(q, k, v, *, causal, softmax_scale):
    return {GOOD}

def settled(q, k, v, *, causal, softmax_scale, deterministic=False):
    q = q if deterministic else Shaky.apply(q)
    return {GOOD}

def refuses(q, k, v, *, causal, softmax_scale, deterministic=False):
    if deterministic:
        raise NotImplementedError("not with head_dim 16")
    return {GOOD}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A bench of the three subjects and one peer."""
    import subprocess

    folder = tmp_path_factory.mktemp("bench")
    (folder / "subjects.py").write_text(SUBJECTS)
    names = ["steady", "settled", "refuses"]
    command = [sys.executable, "-m", "gprojci_suite", "bench", "--inputs", TINY, "--suites", "determinism,accuracy"]
    for name in names:
        command += ["--backend-entry", f"{name}=subjects:{name}"]
    command += ["--backends", ",".join([*names, "sdpa-math"]), "--repeats", "3", "--json", "out.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "takes no keyword `deterministic`" in done.stdout
    return Report.loads((folder / "out.json").read_text())


def rows(report: Report, backend: str, requested: bool) -> dict[str, Repeatability]:
    assert report.determinism is not None
    return {
        item.tensor: item
        for item in report.determinism
        if item.backend == backend and item.deterministic_requested is requested
    }


def test_what_repeats_and_what_does_not(report: Report) -> None:
    for name in ("steady", "sdpa-math"):
        assert all((r.bitwise, r.spread, r.repeats) == (True, 0.0, 3) for r in rows(report, name, False).values())
    shaky = rows(report, "settled", False)
    assert (shaky["dk"].bitwise, shaky["o"].bitwise, shaky["dq"].bitwise) == (True, True, False)
    # 1.25 then 1, or 1 then 1.25.
    assert min(abs((shaky["dq"].spread or 0) - wanted) for wanted in (0.2, 0.25)) < 0.01
    assert all((r.bitwise, r.repeats) == (True, 3) for r in rows(report, "settled", True).values())


def test_the_keyword_may_be_missing_or_refused_without_failing_the_backend(report: Report) -> None:
    assert {entry.status for entry in report.backends} == {"ok"}
    assert report.accuracy is not None
    assert {line.backend for line in report.accuracy.summary} == {"steady", "settled", "refuses", "sdpa-math"}
    for name, reason in (("steady", "takes no keyword"), ("refuses", "refused: "), ("sdpa-math", "takes no keyword")):
        found = rows(report, name, True)
        assert len(found) == 4
        assert all(r.repeats == 0 and r.bitwise is None and reason in (r.detail or "") for r in found.values())


def test_only_the_named_keyword_counts() -> None:
    def named(q: object, *, deterministic: bool = False) -> None: ...
    def swallows(q: object, **rest: object) -> None: ...
    def positional(deterministic: object, /) -> None: ...

    assert [takes_deterministic(f) for f in (named, swallows, positional, print, 3)] == [
        True,
        False,
        False,
        False,
        False,
    ]


def results(scale: float) -> dict[str, dict[str, torch.Tensor]]:
    big, small = torch.full((1, 1, 4, 4), 100.0), torch.full((1, 1, 4, 4), 1e-6)
    tensor = torch.cat([big * scale, small * scale**5], dim=1)
    return {"L0": dict.fromkeys(("o", "dq", "dk", "dv"), tensor)}


def test_the_largest_repeat_counts_and_vanishing_slices_do_not() -> None:
    seen = Repeats()
    for scale in (1.0, 1.0, 1.1, 0.95):
        seen.add(results(scale))
    assert seen.count == 4
    assert seen.bitwise["dq"] is False
    assert seen.spread["dq"] == pytest.approx(0.1, rel=1e-4)


def test_the_sign_of_zero_is_a_bit_and_no_distance() -> None:
    seen = Repeats()
    for value in (0.0, -0.0):
        seen.add({"L0": dict.fromkeys(("o", "dq", "dk", "dv"), torch.full((1, 1, 2, 2), value))})
    assert (seen.bitwise["o"], seen.spread["o"]) == (False, 0.0)


def test_nan_in_a_repeat_is_an_infinite_spread() -> None:
    seen = Repeats()
    seen.add(results(1.0))
    seen.add(results(float("nan")))
    assert seen.spread["dv"] == float("inf")


def test_fields_go_together(report: Report) -> None:
    assert report.determinism is not None
    good = codec.encode(report.determinism[0])
    for wrong in ({"repeats": 1}, {"bitwise": None}, {"spread": None}, {"detail": "why"}, {"repeats": 0}):
        with pytest.raises(ContractError):
            codec.decode(Repeatability, {**good, **wrong})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--suites", "determinism"], "needs --inputs or --invariant-shapes"),
        (["--suites", "symmetry", "--invariant-shapes", "4x4"], "shape"),
        (["--suites", "determinism", "--inputs", TINY, "--repeats", "1"], "repeats"),
    ],
)
def test_usage_errors(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--backends", "sdpa-math", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_the_repro_line_names_shapes_and_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    arguments = ["bench", "--backends", "sdpa-math", "--suites", "symmetry,determinism", "--repeats", "2"]
    assert cli.main([*arguments, "--invariant-shapes", "1x1x32x16", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "same bits" in printed
    assert "dq_key_shift" in printed
    found = json.loads(out.read_text())
    assert "--invariant-shapes 1x1x32x16 --repeats 2" in found["repro"]
    assert found["inputs"] == []
    assert found["accuracy"] is None
    assert {item["case"] for item in found["symmetry"]["responses"]} == {"1x1x32x16.causal.bfloat16"}
