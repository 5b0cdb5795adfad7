"""The gate's decision: which value against which limit gives which verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gprojci_service.gate.decision import decide, without_report
from gprojci_service.results.service import Point, points
from gprojci_suite.contract.manifest import GateSettings, parse
from gprojci_suite.contract.report import Report

CEILING = {"dq_error_ceiling": 0.0035}


def judge(report, limits, gated=("gproj",), **settings):
    return decide(GateSettings(limits=limits, **settings), Report.from_json(report), gated)


@pytest.mark.parametrize(("value", "verdict"), [(0.002, "pass"), (0.0035, "pass"), (0.00351, "fail"), (43.9, "fail")])
def test_error_ceiling(make_report, value, verdict):
    assert judge(make_report(dq=value), CEILING).verdict == verdict


def test_a_failure_names_tensor_input_head_value_and_limit(make_report):
    decision = judge(make_report(dq=43.9), CEILING)
    expected = "gproj: dQ error on late-keybias is 4,390% (median), limit 0.35%; worst head L1.b0.h0 4,390%"
    assert decision.summary == expected
    (finding,) = decision.findings
    assert (finding.value, finding.limit, finding.slice, finding.case) == (43.9, 0.0035, "L1.b0.h0", "late-keybias")


@pytest.mark.parametrize(
    ("head", "base", "verdict"), [(0.002, 0.002, "pass"), (0.00211, 0.002, "fail"), (0.001, 0.002, "pass")]
)
def test_error_ratio_to_base(make_report, head, base, verdict):
    assert judge(make_report(dq=head, base_dq=base), {"dq_error_ratio": 1.05}).verdict == verdict


@pytest.mark.parametrize(("spread", "verdict"), [(0.0, "fail"), (None, "fail"), (0.04, "fail"), (0.06, "pass")])
@pytest.mark.parametrize("moved", [0, 1])
def test_the_ratio_is_widened_by_the_run_to_run_spread(make_report, spread, verdict, moved):
    report = make_report(dq=0.00222, base_dq=0.002)
    report["accuracy"]["summary"][moved]["spread"] = spread
    assert judge(report, {"dq_error_ratio": 1.05}).verdict == verdict


def test_a_ratio_without_a_base_does_not_decide(make_report):
    decision = judge(make_report(base_dq=None), {"dq_error_ratio": 1.05, **CEILING})
    assert decision.verdict == "pass"
    assert [(finding.verdict, finding.required) for finding in decision.findings] == [
        ("pass", True),
        ("neutral", False),
    ]


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((0.97, 1.05), "pass"), ((1.11, 1.2), "fail"), ((1.05, 1.15), "neutral")],
)
def test_time_decides_by_the_whole_interval(make_report, interval, verdict):
    assert judge(make_report(time=interval), {"kernel_time_increase": 0.1}).verdict == verdict


def test_time_that_was_not_measured_is_neutral(make_report):
    assert judge(make_report(time=None), {"kernel_time_increase": 0.1}).verdict == "neutral"


@pytest.mark.parametrize("key", ["dq_error_ceiling", "dv_worst_ceiling", "dk_error_ratio"])
def test_accuracy_that_was_not_measured_is_neutral(make_report, key):
    decision = judge(make_report(accuracy=None), {key: 1.0})
    assert decision.verdict == "neutral"
    assert "was not measured" in decision.summary


def test_non_finite_output_fails_even_without_a_limit(make_report):
    report = make_report()
    report["accuracy"]["summary"][0] |= {"nonfinite": 3, "median": "NaN", "worst": "NaN"}
    decision = judge(report, {})
    assert decision.verdict == "fail"
    assert "3 elements of dQ" in decision.summary


def test_slices_that_all_vanish_cannot_be_told(make_report):
    report = make_report()
    report["accuracy"]["summary"][0] |= {"median": "NaN", "worst": "NaN", "worst_slice": "", "vanishing": 1}
    assert judge(report, CEILING).verdict == "neutral"


@pytest.mark.parametrize(
    "status", ["wrong_result", "runtime_error", "timeout", "out_of_memory", "unsupported", "build_error"]
)
def test_a_backend_that_failed_fails_the_gate(make_report, status):
    report = make_report(accuracy=None, throughput=None)
    report["backends"][0] |= {"status": status, "detail": "segmentation fault"}
    decision = judge(report, CEILING)
    assert decision.verdict == "fail"
    assert "segmentation fault" in decision.summary


def test_a_backend_that_the_policy_gates_cannot_be_dropped(make_report):
    decision = judge(make_report(), CEILING, gated=("gproj", "zerosum"))
    assert (decision.verdict, decision.summary) == ("fail", "zerosum is not in the head's manifest")


def test_an_input_that_the_policy_gates_cannot_be_dropped(make_report):
    assert judge(make_report(), CEILING, inputs=("late-keybias", "early-rope")).verdict == "fail"


def test_informative_limits_do_not_decide(make_report):
    decision = judge(make_report(dq=1.0), CEILING, informative=("dq_error_ceiling",))
    assert decision.verdict == "neutral"
    assert decision.summary == "nothing is gated: the base's manifest sets no limits"


def judge_by(report, text, **options):
    """The decision on a report by a manifest's `[gate]` and rules."""
    manifest = "[backends.gproj]\nentry = 'a:b'\n[accuracy]\ninputs = ['late-keybias']\n" + text
    parsed = parse(manifest, device="cpu")
    return decide(parsed.gate, Report.from_json(report), ("gproj",), **options)


RULE = "[gate]\ndq_error_ceiling = 0.0035\n[[gate.rules]]\n"


@pytest.mark.parametrize(
    ("rule", "limit", "line"),
    [
        ("dq_error_ceiling = 0.001", 0.001, 7),
        ("backends = ['gproj']\ndq_error_ceiling = 0.001", 0.001, 7),
        ("inputs = ['late-*', 'late-keybias']\ndq_error_ceiling = 0.001", 0.001, 7),
        ("hardware = ['cpu-*']\ndq_error_ceiling = 0.001", 0.001, 7),
        ("hardware = ['cpu']\ndq_error_ceiling = 0.001", 0.001, 7),
        ("hardware = ['h200', 'a100']\ndq_error_ceiling = 0.001", 0.0035, 6),
        ("dq_worst_ceiling = 1.0", 0.0035, 6),
        ("dq_error_ceiling = 0.1\n[[gate.rules]]\ndq_error_ceiling = 0.001", 0.001, 9),
    ],
)
def test_the_last_rule_that_fits_sets_the_limit(make_report, rule, limit, line):
    decision = judge_by(make_report(dq=0.002), RULE + rule, hardware="cpu")
    (finding,) = (finding for finding in decision.findings if finding.limit_key == "dq_error_ceiling")
    assert (finding.limit, finding.line, decision.verdict) == (limit, line, "fail" if limit < 0.002 else "pass")


def test_a_rule_of_a_shape_leaves_other_shapes_alone(make_report):
    text = "[throughput]\nshapes = ['1x4x1024x64', '1x4x2048x64']\n[gate]\nkernel_time_increase = 0.1\n[[gate.rules]]\n"
    report = make_report(time=(1.2, 1.3))
    (other,) = judge_by(
        report, text + "shapes = ['1x4x2048x64']\nkernel_time_increase = 0.5\nrequired = false"
    ).findings[:1]
    assert (other.verdict, other.limit, other.required) == ("fail", 0.1, True)
    loose = judge_by(report, text + "shapes = ['*x1024x64']\nkernel_time_increase = 0.5")
    assert loose.verdict == "pass"


@pytest.mark.parametrize(
    ("own", "rule", "required"), [("", "false", False), ("informative = ['dq_error_ceiling']\n", "true", True)]
)
@pytest.mark.parametrize("limit", ["", "dq_error_ceiling = 0.001\n"])
def test_a_rule_says_whether_limits_decide(make_report, own, rule, required, limit):
    text = RULE.replace("[[", f"{own}[[") + f"{limit}required = {rule}"
    (finding,) = judge_by(make_report(dq=1.0), text).findings
    assert (finding.verdict, finding.required) == ("fail", required)


def test_a_rule_about_what_was_not_measured_is_not_passed_over(make_report):
    text = (
        "[throughput]\nshapes = ['9x9x9x64']\n[throughput.cuda]\nshapes = ['8x8x8x64']\n[gate]\ndq_error_ceiling = 1\n"
    )
    rule = "[[gate.rules]]\nshapes = ['9x9x9x64']\nkernel_time_increase = 0.1\n"
    decision = judge_by(make_report(), text + rule)
    assert (decision.verdict, decision.summary) == (
        "neutral",
        "gproj: what kernel_time_increase limits on 9x9x9x64 was not measured",
    )
    assert judge_by(make_report(), text + rule.replace("9x9x9x64", "8x8x8x64")).verdict == "pass"  # of CUDA alone


def moved(median, case="late-keybias", backend="gproj", revision="head", response="dq_key_shift"):
    return {
        "backend": backend,
        "revision": revision,
        "case": case,
        "response": response,
        "median": median,
        "worst": median,
        "worst_slice": "" if median == "NaN" else "L1.b0.h0",
        "slices": 1,
        "vanishing": int(median == "NaN"),
    }


@pytest.mark.parametrize(
    ("median", "verdict"),
    [(0.001, "pass"), (0.004, "pass"), (0.0041, "fail"), ("Infinity", "fail"), ("NaN", "neutral")],
)
def test_symmetry_ceiling(make_report, median, verdict):
    report = make_report(symmetry={"responses": [], "summary": [moved(median)]})
    assert judge(report, {"dq_symmetry_ceiling": 0.004}).verdict == verdict


def test_symmetry_is_gated_on_the_heads_key_shift_alone(make_report):
    summary = [moved(0.001), moved(9.0, revision="base"), moved(9.0, response="dk_row_sum")]
    report = make_report(symmetry={"responses": [], "summary": summary})
    decision = judge(report, {"dq_symmetry_ceiling": 0.004})
    assert [(finding.limit_key, finding.verdict) for finding in decision.findings] == [("dq_symmetry_ceiling", "pass")]


def test_symmetry_holds_on_long_shapes_whatever_inputs_are_gated(make_report):
    summary = [moved(0.001), moved(0.75, case="1x1x16384x64.causal.bfloat16")]
    report = make_report(symmetry={"responses": [], "summary": summary})
    decision = judge(report, {"dq_symmetry_ceiling": 0.004}, inputs=("late-keybias",))
    assert (
        decision.summary
        == (
            "gproj: response of dQ to a shift of the keys on 1x1x16384x64.causal.bfloat16 is 75% (median), limit 0.4%; "
            "worst head L1.b0.h0 75%"
        )[:140]
    )
    assert decision.verdict == "fail"


def test_symmetry_that_was_not_measured_is_neutral(make_report):
    assert judge(make_report(), {"dq_symmetry_ceiling": 0.004, **CEILING}).verdict == "neutral"


def test_step_limits_are_not_silently_passed(make_report):
    decision = judge(make_report(), {"step_overhead_ceiling": 0.02, **CEILING})
    assert decision.verdict == "neutral"
    assert "training step time over the anchor's was not measured" in decision.summary


def trained(low, high, against, against_revision):
    middle = (low + high) / 2
    pair = {"against_backend": against, "against_revision": against_revision, "case": "450m", "pass": "step"}
    interval = {"pairs": 2, "ratio": middle, "low": low, "high": high, "confidence": 0.95, "ratios": [middle, middle]}
    return {"backend": "gproj", "revision": "head", **pair, **interval, "control": False}


@pytest.mark.parametrize(
    ("interval", "verdict"), [((1.0, 1.019), "pass"), ((1.021, 1.03), "fail"), ((1.01, 1.03), "neutral")]
)
@pytest.mark.parametrize(
    ("key", "against", "other"),
    [
        ("step_overhead_increase", ("gproj", "base"), ("sdpa-math", "ruler")),
        ("step_overhead_ceiling", ("sdpa-math", "ruler"), ("gproj", "base")),
    ],
)
def test_a_training_step_decides_by_the_whole_interval(make_report, interval, verdict, key, against, other):
    compared = [trained(*interval, *against), trained(9.0, 9.1, *other)]
    decision = judge(make_report(step={"measurements": [], "comparisons": compared}), {key: 0.02})
    assert decision.verdict == verdict
    (finding,) = decision.findings
    assert (finding.case, finding.low) == ("450m", pytest.approx(interval[0] - 1))
    assert "training step time on 450m is" in finding.message


def test_a_step_that_this_backend_did_not_take_is_neutral(make_report):
    report = make_report(step={"measurements": [], "comparisons": []})
    decision = judge(report, {"step_overhead_ceiling": 0.02})
    assert (decision.verdict, decision.summary) == (
        "neutral",
        "gproj: training step time over the anchor's was not measured",
    )


def test_responses_of_dq_to_a_key_shift_become_points(make_report):
    summary = [moved(0.001), moved(0.75, response="dk_row_sum"), moved(0.002, revision="base")]
    report = Report.from_json(make_report(symmetry={"responses": [], "summary": summary}))
    found = [point for point in points(report) if point.metric == "dq_symmetry"]
    assert [(point.revision, point.case, point.unit, point.value, point.count) for point in found] == [
        ("head", "late-keybias", "fraction", 0.001, 1),
        ("base", "late-keybias", "fraction", 0.002, 1),
    ]


def test_peak_memory_becomes_points(make_report):
    report = make_report()
    for measurement, peak in zip(report["throughput"]["measurements"], (3 * 2**20, None), strict=True):
        measurement["peak_memory_bytes"] = peak
    forward = {**report["throughput"]["measurements"][0], "pass": "forward", "peak_memory_bytes": 2**20}
    report["throughput"]["measurements"].append(forward)
    found = [point for point in points(Report.from_json(report)) if point.unit == "bytes"]
    case = forward["case"]
    assert found == [Point("gproj", "head", case, "peak_memory", "bytes", 3.0 * 2**20, None, None, 1)]


def test_a_training_step_becomes_points(make_report):
    measured = {"backend": "gproj", "revision": "head", "model": "450m", "seconds": [0.2, 0.4], "median_seconds": 0.3}
    measured |= {"attention_share": 0.135, "peak_memory_bytes": None, "loss": 5.5}
    compared = [trained(1.01, 1.03, "sdpa-math", "ruler"), trained(1.0, 1.1, "gproj", "base")]
    report = make_report(time=None, step={"measurements": [measured], "comparisons": compared})
    found = [point for point in points(Report.from_json(report)) if point.metric.startswith("step")]
    assert found == [
        Point("gproj", "head", "450m", "step_seconds", "seconds", 0.3, None, None, 2),
        Point("gproj", "head", "450m", "step_ratio_anchor", "ratio", 1.02, 1.01, 1.03, 2),
    ]


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("build_error", "fail"), ("timeout", "fail"), ("lost_worker", "error"), ("checkout_error", "error")],
)
def test_without_a_report(kind, verdict):
    assert without_report(kind, "why\nmore").verdict == verdict


@given(st.floats(0, 1e6), st.floats(1e-6, 1e3))
def test_a_verdict_follows_the_order_of_value_and_limit(value, limit):
    report = _plain(value)
    decision = decide(GateSettings(limits={"dq_error_ceiling": limit}), report, ("gproj",))
    assert (decision.verdict == "pass") == (value <= limit)
    assert len(decision.summary) <= 140


def _plain(value: float) -> Report:
    from gprojci_suite.contract.report import Accuracy, AccuracySummary, Backend

    line = AccuracySummary("gproj", "head", "late-keybias", "dq", value, value, "L1.b0.h0", 1, 0, 0, None)
    report = object.__new__(Report)
    fields = {
        "backends": (Backend("gproj", "head", "subject", "ok", None),),
        "inputs": (_Input(),),
        "accuracy": Accuracy((), (line,)),
        "throughput": None,
    }
    for name, content in fields.items():
        object.__setattr__(report, name, content)
    return report


class _Input:
    input = "late-keybias"
