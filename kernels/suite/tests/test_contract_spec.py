"""The spec: round trip, defaults and refusals."""

from typing import Any

import pytest

from gprojci_suite.contract import ContractError, RunSpec

SPEC: dict[str, Any] = {
    "schema_version": 1,
    "device": "cpu",
    "seed": 0,
    "suites": ["accuracy", "throughput"],
    "subjects": [
        {
            "backend": "gproj",
            "revision": "head",
            "entry": "gproj:attention",
            "python": "/env/bin/python",
            "site": "/env",
            "commit": "c",
            "build_key": "k",
            "build_seconds": 41.5,
        }
    ],
    "peers": ["emulated-fa3"],
    "anchor": "sdpa-math",
    "inputs": ["late-keybias"],
    "input_directory": None,
    "throughput": {
        "shapes": ["1x4x1024x64"],
        "causal": True,
        "pairs": 20,
        "max_pairs": 80,
        "confidence": 0.95,
        "margin": 0.1,
        "step_models": ["tiny"],
        "step_margin": 0.02,
        "processes": 1,
    },
    "invariants": {"shapes": ["1x1x16384x64"], "causal": True, "repeats": 5},
    "limits": {
        "call_seconds": 120,
        "start_seconds": 120,
        "output_bytes": 10**9,
        "file_bytes": 20 * 10**9,
        "processes": 1024,
        "threads": 8192,
        "session_seconds": 3000.0,
    },
}


def test_round_trip() -> None:
    spec = RunSpec.from_json(SPEC)
    assert spec.to_json() == SPEC
    assert RunSpec.loads(spec.dumps()) == spec


def test_defaults() -> None:
    least = {name: SPEC[name] for name in SPEC if name not in ("limits", "input_directory")}
    assert RunSpec.from_json(least) == RunSpec.from_json({**SPEC, "limits": {}})
    assert RunSpec.from_json(least).limits.session_seconds is None
    without = RunSpec.from_json({name: SPEC[name] for name in SPEC if name != "invariants"}).invariants
    assert (without.shapes, without.causal, without.repeats) == ((), True, 5)


@pytest.mark.parametrize("suite", ["symmetry", "determinism"])
def test_symmetry_and_determinism_need_an_input_set_or_a_shape(suite: str) -> None:
    asked = {**SPEC, "suites": [suite], "inputs": []}
    assert RunSpec.from_json(asked).suites == (suite,)
    with pytest.raises(ContractError, match=rf"inputs.*{suite}"):
        RunSpec.from_json({**asked, "invariants": {}})


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"suites": []}, "$.suites"),
        ({"suites": ["speed"]}, "$.suites[0]"),
        ({"throughput": None}, "$.throughput"),
        ({"inputs": []}, "$.inputs"),
        ({"device": "tpu"}, "$.device"),
        ({"subjects": SPEC["subjects"] * 2}, "$.subjects[1]"),
        ({"subjects": [{**SPEC["subjects"][0], "entry": "gproj"}]}, "$.subjects[0].entry"),
        ({"subjects": [{**SPEC["subjects"][0], "build_seconds": -1.0}]}, "$.subjects[0].build_seconds"),
        ({"throughput": {**SPEC["throughput"], "pairs": 1}}, "$.throughput.pairs"),
        ({"throughput": {**SPEC["throughput"], "max_pairs": 10}}, "$.throughput.max_pairs"),
        ({"throughput": {**SPEC["throughput"], "confidence": 1}}, "$.throughput.confidence"),
        ({"throughput": {**SPEC["throughput"], "margin": "NaN"}}, "$.throughput.margin"),
        ({"throughput": {**SPEC["throughput"], "step_models": ["7b"]}}, "$.throughput.step_models[0]"),
        ({"throughput": {**SPEC["throughput"], "step_margin": -1.0}}, "$.throughput.step_margin"),
        ({"throughput": {**SPEC["throughput"], "processes": 0}}, "$.throughput.processes"),
        ({"throughput": {**SPEC["throughput"], "processes": 17}}, "$.throughput.processes"),
        ({"throughput": {**SPEC["throughput"], "pairs": 4, "processes": 5}}, "$.throughput.processes"),
        ({"suites": ["step"], "throughput": None}, "$.throughput.step_models"),
        ({"invariants": {"repeats": 1}}, "$.invariants.repeats"),
        ({"limits": {"call_seconds": 0}}, "$.limits.call_seconds"),
        ({"limits": {"output_bytes": 0}}, "$.limits.output_bytes"),
        ({"limits": {"file_bytes": 2**63}}, "$.limits.file_bytes"),
        ({"limits": {"processes": -1}}, "$.limits.processes"),
        ({"limits": {"threads": 0}}, "$.limits.threads"),
        ({"limits": {"session_seconds": 0.0}}, "$.limits.session_seconds"),
    ],
)
def test_refusals(change: dict[str, Any], where: str) -> None:
    with pytest.raises(ContractError) as caught:
        RunSpec.from_json({**SPEC, **change})
    assert caught.value.path == where
