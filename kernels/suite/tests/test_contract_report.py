"""The report: what goes in comes out, and whatever breaks the contract is refused with the path at fault."""

import copy
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_report import REPORT

from gprojci_suite.contract import ContractError, Report, codec, document, report

OPTIONAL = {"p50", "p90", "p99", "p100", "norm_ratio", "surface", "symmetry", "determinism", "step"}
OPTIONAL |= {"samples", "ceilings", "tflops", "ceiling_share", "peak_memory_bytes", "void_pairs", "processes"}
OPTIONAL |= {"host_seconds", "graph_seconds", "graph_detail", "kernels", "clock", "spills", "build_seconds"}
OPTIONAL |= {"start_seconds", "working_seconds"}
"""Fields that may be left out, and are then null."""


def changed(path: str, value: Any) -> dict[str, Any]:
    """The example report with one value replaced, or deleted where `value` is Ellipsis."""
    result = copy.deepcopy(REPORT)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target: Any = result
    for part in parents:
        target = target[part]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return result


def test_round_trip() -> None:
    report = Report.from_json(REPORT)
    assert report.to_json() == REPORT
    assert Report.loads(report.dumps()) == report


def test_a_report_of_the_next_version_is_read_without_what_it_added() -> None:
    newer = copy.deepcopy(REPORT) | {"schema_version": 2, "added": [1]}
    newer["environment"]["added"] = {"deep": True}
    newer["accuracy"]["slices"][0]["added"] = 1
    assert Report.from_json(newer).to_json() == {**REPORT, "schema_version": 2}
    newer["environment"]["network"] = "a word of the next version"
    with pytest.raises(ContractError, match=r"\$\.environment\.network"):
        Report.from_json(newer)


def test_a_report_of_the_version_before_is_read_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "SCHEMA_VERSION", 2)
    assert Report.from_json(REPORT).to_json() == REPORT
    with pytest.raises(ContractError, match=r"\$\.extra: unknown field"):
        Report.from_json(REPORT | {"extra": 1})
    monkeypatch.setattr(report, "SCHEMA_VERSION", 3)
    with pytest.raises(ContractError, match=r"1 cannot be read by a ruler or service of version 3"):
        Report.from_json(REPORT)


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("seed", ..., "$.seed"),
        ("extra", 1, "$.extra"),
        ("schema_version", 0, "$.schema_version"),
        ("schema_version", 3, "$.schema_version"),
        ("schema_version", True, "$.schema_version"),
        ("seed", "0", "$.seed"),
        ("seed", 1.0, "$.seed"),
        ("created_at", "yesterday", "$.created_at"),
        ("created_at", "2026-01-02T03:04:05", "$.created_at"),
        ("created_at", "2026-01-02T03:04:05+02:00", "$.created_at"),
        ("working_seconds", 1.75, "$.working_seconds"),
        ("environment.network", "open", "$.environment.network"),
        ("environment.clocks", {"sm": "fast"}, "$.environment.clocks.sm"),
        ("environment.throttle_reasons", "none", "$.environment.throttle_reasons"),
        ("backends.0.status", "great", "$.backends[0].status"),
        ("backends.0.detail", "but", "$.backends[0].detail"),
        ("backends.1.detail", None, "$.backends[1].detail"),
        ("backends.1.detail", "", "$.backends[1].detail"),
        ("backends.1.revision", "head", "$.backends[1].revision"),
        ("backends.0.revision", "ruler", "$.backends[0].revision"),
        ("accuracy.slices.0.tensor", "dz", "$.accuracy.slices[0].tensor"),
        ("accuracy.slices.0.rel_err", None, "$.accuracy.slices[0].rel_err"),
        ("accuracy.slices.0.rel_err", "nan", "$.accuracy.slices[0].rel_err"),
        ("accuracy.slices.0.nonfinite", 0.5, "$.accuracy.slices[0].nonfinite"),
        ("accuracy.slices.0.vanishing", 0, "$.accuracy.slices[0].vanishing"),
        ("accuracy.slices.0.backend", "nobody", "$.accuracy.slices[0]"),
        ("accuracy.slices.0.input", "nothing", "$.accuracy.slices[0].input"),
        ("accuracy.slices.0", [], "$.accuracy.slices[0]"),
        ("accuracy.summary.0.revision", "ruler", "$.accuracy.summary[0]"),
        ("throughput.measurements.0.pass", "sideways", "$.throughput.measurements[0].pass"),
        ("throughput.comparisons.0.pairs", 3, "$.throughput.comparisons[0].ratios"),
        ("throughput.comparisons.0.low", 2.0, "$.throughput.comparisons[0].low"),
        ("throughput.comparisons.0.against_backend", "fa3", "$.throughput.comparisons[0]"),
        ("throughput.comparisons.0.processes", 0, "$.throughput.comparisons[0].processes"),
        ("throughput.comparisons.0.processes", 3, "$.throughput.comparisons[0].processes"),
        ("throughput.clock.0.backend", "fa3", "$.throughput.clock[0]"),
        ("throughput.clock.0.verdict", "perhaps", "$.throughput.clock[0].verdict"),
        ("throughput.clock.0.calls", 0, "$.throughput.clock[0].calls"),
        ("throughput.clock.0.empty_low", 0.1, "$.throughput.clock[0].empty_low"),
        ("throughput.kernels.0.backend", "fa3", "$.throughput.kernels[0]"),
        ("throughput.kernels.0.pass", "forward_backward", "$.throughput.kernels[0].pass"),
        ("throughput.kernels.0.kernel", "", "$.throughput.kernels[0].kernel"),
        ("throughput.kernels.0.kernel", "k" * 201, "$.throughput.kernels[0].kernel"),
        ("throughput.kernels.0.launches", 0, "$.throughput.kernels[0].launches"),
        ("throughput.kernels.0.seconds", "Infinity", "$.throughput.kernels[0].seconds"),
        ("throughput.kernels.0.spills", -1, "$.throughput.kernels[0].spills"),
        ("throughput.kernels.0.grid", [1, 2], "$.throughput.kernels[0].grid"),
        ("accuracy.slices.0.norm_ratio", "one", "$.accuracy.slices[0].norm_ratio"),
        ("surface.points.0.backend", "fa3", "$.surface.points[0]"),
        ("surface.points.0.ratio", -1.0, "$.surface.points[0].ratio"),
        ("surface.points.0.logit_std", 0.0, "$.surface.points[0].logit_std"),
        ("surface.points.0.logit_std", "NaN", "$.surface.points[0].logit_std"),
        ("surface.points.0.tensor", "lse", "$.surface.points[0].tensor"),
        ("surface.points.0.median", None, "$.surface.points[0].median"),
        ("surface.points", [REPORT["surface"]["points"][0]] * 2, "$.surface.points[1]"),
        ("surface", [], "$.surface"),
        ("symmetry.responses.0.response", "dv_row_sum", "$.symmetry.responses[0].response"),
        ("symmetry.responses.0.backend", "fa3", "$.symmetry.responses[0]"),
        ("symmetry.responses.0.vanishing", None, "$.symmetry.responses[0].vanishing"),
        ("symmetry.summary.0.revision", "base", "$.symmetry.summary[0]"),
        ("symmetry.summary.0.vanishing", 1, "$.symmetry.summary[0].median"),
        ("symmetry.summary.0.vanishing", 2, "$.symmetry.summary[0].vanishing"),
        ("throughput.ceilings.copy_gb_s", None, "$.throughput.ceilings.copy_gb_s"),
        ("throughput.measurements.0.tflops", "fast", "$.throughput.measurements[0].tflops"),
        ("environment.samples.0.moment", "now", "$.environment.samples[0].moment"),
        ("step.measurements.0.model", "7b", "$.step.measurements[0].model"),
        ("step.measurements.0.backend", "nobody", "$.step.measurements[0]"),
        ("step.measurements.0.loss", None, "$.step.measurements[0].loss"),
        ("step.comparisons.0.against_backend", "fa3", "$.step.comparisons[0]"),
        ("step.comparisons.0.void_pairs", -1, "$.step.comparisons[0].void_pairs"),
        ("step", [], "$.step"),
        ("determinism.0.backend", "nobody", "$.determinism[0]"),
        ("determinism.0.repeats", 1, "$.determinism[0].repeats"),
        ("determinism.0.repeats", 0, "$.determinism[0].bitwise"),
        ("determinism.0.spread", None, "$.determinism[0].spread"),
        ("determinism.0.detail", "why", "$.determinism[0].detail"),
        ("determinism.0.tensor", "lse", "$.determinism[0].tensor"),
        ("determinism", {}, "$.determinism"),
    ],
)
def test_rejections_name_the_path(path: str, value: Any, where: str) -> None:
    with pytest.raises(ContractError) as caught:
        Report.from_json(changed(path, value))
    assert caught.value.path == where


def test_every_missing_field_is_refused() -> None:
    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                if key not in OPTIONAL and not path.endswith((".packages", ".provenance")):
                    with pytest.raises(ContractError):
                        Report.from_json(changed(f"{path}.{key}".lstrip("."), ...))
                walk(item, f"{path}.{key}")
        if isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}.{index}")

    walk(REPORT, "")


@pytest.mark.parametrize(
    "path",
    [
        "surface",
        "symmetry",
        "determinism",
        "step",
        "environment.samples",
        "throughput.ceilings",
        "accuracy.slices.0.p50",
        "accuracy.slices.0.norm_ratio",
    ],
)
def test_what_did_not_run_may_be_left_out(path: str) -> None:
    assert Report.from_json(changed(path, ...)) == Report.from_json(changed(path, None))


def test_backends_without_results_have_none() -> None:
    report = changed("accuracy.slices.0.backend", "fa3")
    report["accuracy"]["slices"][0]["revision"] = "ruler"
    with pytest.raises(ContractError, match=r"slices\[0\].*cannot have results"):
        Report.from_json(report)


def test_a_backend_is_listed_once() -> None:
    report = changed("backends.1", REPORT["backends"][0])
    with pytest.raises(ContractError, match="twice"):
        Report.from_json(report)


@given(st.floats())
def test_any_float_survives(value: float) -> None:
    report = Report.from_json(changed("accuracy.slices.0.rel_err", codec.encode(value)))
    text = report.dumps()
    assert all(word not in text for word in (": NaN", ": Infinity", ": -Infinity"))
    back = Report.loads(text).accuracy
    assert back is not None
    assert back.slices[0].rel_err == value or math.isnan(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_anything_else_is_refused_with_one_error(value: Any) -> None:
    with pytest.raises(ContractError):
        Report.from_json(value)


@pytest.mark.parametrize("text", ["", "{", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, '{"seed": 1e999}'])
def test_text_that_is_not_json(text: str) -> None:
    with pytest.raises(ContractError):
        Report.loads(text)


def test_documented_field_by_field() -> None:
    path = Path(__file__).parent.parent / "CONTRACT.md"
    command = "python -m gprojci_suite.contract.document > CONTRACT.md"
    assert path.read_text() == document.render(), f"out of date; run {command}"

    def fields(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*(fields(item) for item in value.values()))
        return set().union(*(fields(item) for item in value)) if isinstance(value, list) else set()

    undocumented = {name for name in fields(REPORT) if f"| `{name}` |" not in path.read_text()}
    assert undocumented == set()  # keys of packages and provenance, torch and step, are fields elsewhere


def test_contract_imports_the_standard_library_only() -> None:
    code = (
        "import sys, json; before = set(sys.modules); import gprojci_suite.contract, gprojci_suite.contract.document;"
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(json.loads(done.stdout)) - set(sys.stdlib_module_names) == {"gprojci_suite"}
