"""Limits of memory, spilled registers and repeats: which value against which limit gives which verdict."""

from __future__ import annotations

import pytest

from gprojci_service.gate.decision import decide
from gprojci_service.pages.findings import limit_of_metric, metric_of_limit, view
from gprojci_suite.contract.manifest import GATE_LIMITS, GateRule, GateSettings
from gprojci_suite.contract.report import Report

CASE = "1x4x1024x64.causal.bfloat16"
LONG = "1x1x16384x64.causal.bfloat16"


def judge(report, limits, **settings):
    return decide(GateSettings(limits=limits, **settings), Report.from_json(report), ("gproj",))


def findings(report, limits, **settings):
    decision = judge(report, limits, **settings)
    return [(found.limit_key, found.case, found.verdict, found.required) for found in decision.findings]


def timed(backend, revision, peak, case=CASE, which="forward_backward"):
    about = {"backend": backend, "revision": revision, "case": case, "pass": which}
    return about | {"seconds": [0.1], "median_seconds": 0.1, "peak_memory_bytes": peak}


def trained(revision, peak):
    times = {"seconds": [0.1], "median_seconds": 0.1, "attention_share": None, "loss": 2.0}
    return {"backend": "gproj", "revision": revision, "model": "450m", "peak_memory_bytes": peak, **times}


def kernel(revision, spills, name="bwd", case=CASE):
    sizes = {"registers_per_thread": 255, "shared_memory_bytes": 0, "grid": [1, 1, 1], "block": [128, 1, 1]}
    about = {"backend": "gproj", "revision": revision, "case": case, "pass": "backward", "kernel": name}
    return {**about, **sizes, "launches": 1, "seconds": 0.001, "spills": spills}


def repeated(spread, case="late-keybias", tensor="dq", revision="head", asked=False, bitwise=None, repeats=5):
    about = {"backend": "gproj", "revision": revision, "case": case, "tensor": tensor}
    if not repeats:
        return {
            **about,
            "deterministic_requested": asked,
            "repeats": 0,
            "bitwise": None,
            "spread": None,
            "detail": "no",
        }
    bits = spread == 0 if bitwise is None else bitwise
    found = {"repeats": repeats, "bitwise": bits, "spread": spread, "detail": None}
    return {**about, "deterministic_requested": asked, **found}


def throughput(measurements=(), kernels=()):
    return {"measurements": list(measurements), "comparisons": [], "kernels": list(kernels)}


@pytest.mark.parametrize(("head", "verdict"), [(100, "pass"), (105, "pass"), (106, "fail"), (50, "pass")])
@pytest.mark.parametrize(
    ("key", "against", "other"),
    [
        ("peak_memory_increase", ("gproj", "base"), ("sdpa-math", "ruler")),
        ("peak_memory_overhead_ceiling", ("sdpa-math", "ruler"), ("gproj", "base")),
    ],
)
def test_peak_memory_over_base_and_anchor(make_report, head, verdict, key, against, other):
    mib = 2**20
    peaks = [timed("gproj", "head", head * mib), timed(*against, 100 * mib), timed(*other, 9 * mib)]
    forward = timed("gproj", "head", 10**12, which="forward")
    decision = judge(make_report(throughput=throughput([*peaks, forward])), {key: 0.05})
    assert decision.verdict == verdict
    (finding,) = decision.findings
    assert (finding.case, finding.value) == (CASE, pytest.approx(head / 100 - 1))
    assert f"peak GPU memory on {CASE} is {head} MiB" in finding.message
    assert "100 MiB, limit +5%" in finding.message


def test_the_memory_of_a_training_step_is_limited_by_the_same_key(make_report):
    step = {"measurements": [trained("head", 3 * 2**30), trained("base", 2 * 2**30)], "comparisons": []}
    report = make_report(step=step)
    decision = judge(report, {"peak_memory_increase": 0.1})
    assert decision.summary == "gproj: peak GPU memory on 450m is 3 GiB, +50% over the base's 2 GiB, limit +10%"
    rule = GateRule(limits={"peak_memory_increase": 0.6}, step_models=("450m",))
    assert judge(report, {"peak_memory_increase": 0.1}, rules=(rule,)).verdict == "pass"


@pytest.mark.parametrize("key", ["peak_memory_increase", "peak_memory_overhead_ceiling"])
def test_memory_on_a_cpu_is_not_passed_over_in_silence(make_report, key):
    decision = judge(make_report(), {key: 0.05})
    assert (decision.verdict, len(decision.findings)) == ("neutral", 1)
    assert "peak GPU memory over the" in decision.summary
    assert decision.summary.endswith("was not measured")


def test_memory_without_a_base_does_not_decide(make_report):
    report = make_report(base_dq=None, throughput=throughput([timed("gproj", "head", 2**20)]))
    assert findings(report, {"peak_memory_increase": 0.05, "dq_error_ceiling": 0.0035}) == [
        ("dq_error_ceiling", "late-keybias", "pass", True),
        ("peak_memory_increase", None, "neutral", False),
    ]


@pytest.mark.parametrize(("limit", "verdict"), [(0.0, "fail"), (7.0, "fail"), (8.0, "pass")])
def test_the_worst_kernel_of_a_case_counts(make_report, limit, verdict):
    kernels = [kernel("head", 8, "worse"), kernel("head", 2), kernel("head", None, "cuda"), kernel("base", 4)]
    decision = judge(make_report(throughput=throughput(kernels=kernels)), {"spilled_registers_ceiling": limit})
    assert decision.verdict == verdict
    assert decision.findings[0].message == (
        f"gproj: 8 registers of a thread spilled on {CASE} (base 4), limit {limit:g}; "
        "worst kernel worse of the backward"
    )


def test_kernels_of_which_nobody_says_what_they_spill_are_neutral(make_report):
    report = make_report(throughput=throughput(kernels=[kernel("head", None)]))
    assert findings(report, {"spilled_registers_ceiling": 0.0}) == [
        ("spilled_registers_ceiling", None, "neutral", True)
    ]


@pytest.mark.parametrize(("base", "told"), [(0, True), (7, True), (8, False), (None, False)])
def test_a_kernel_that_begins_to_spill_is_an_early_warning_that_does_not_decide(make_report, base, told):
    kernels = [kernel("head", 8), *([kernel("base", base)] if base is not None else [])]
    found = findings(make_report(throughput=throughput(kernels=kernels)), {"dq_error_ceiling": 0.0035})
    warning = [("spilled_registers_ceiling", CASE, "neutral", False)] if told else []
    assert found == [("dq_error_ceiling", "late-keybias", "pass", True), *warning]


@pytest.mark.parametrize(
    ("spread", "bitwise", "limit", "verdict"),
    [
        (0.0, True, 0.0, "pass"),
        (0.0, False, 0.0, "fail"),  # another sign of zero is another result
        (0.001, False, 0.0, "fail"),
        (0.001, False, 0.001, "pass"),
        (0.0011, False, 0.001, "fail"),
    ],
)
def test_repeats(make_report, spread, bitwise, limit, verdict):
    report = make_report(determinism=[repeated(0.0, tensor="o"), repeated(spread, bitwise=bitwise)])
    decision = judge(report, {"repeat_spread_ceiling": limit})
    assert decision.verdict == verdict
    words = "have the same bits" if bitwise else "differ by up to"
    assert f"5 calls on late-keybias without deterministic=True {words}" in decision.findings[0].message


def test_a_backend_that_can_be_asked_to_repeat_is_held_to_that(make_report):
    plain, asked = repeated(0.5), repeated(0.0, asked=True)
    assert judge(make_report(determinism=[plain, asked]), {"repeat_spread_ceiling": 0.0}).verdict == "pass"
    refused = repeated(0.0, asked=True, repeats=0)
    assert judge(make_report(determinism=[plain, refused]), {"repeat_spread_ceiling": 0.0}).verdict == "fail"


def test_repeats_are_gated_on_the_gated_inputs_and_on_all_shapes(make_report):
    report = make_report(determinism=[repeated(0.5), repeated(0.0, LONG), repeated(0.5, revision="base")])
    limits = {"repeat_spread_ceiling": 0.0}
    assert findings(report, limits, inputs=()) == [("repeat_spread_ceiling", LONG, "pass", True)]
    assert [found[1] for found in findings(report, limits)] == ["late-keybias", LONG]
    assert findings(make_report(), limits) == [("repeat_spread_ceiling", None, "neutral", True)]


@pytest.mark.parametrize(
    ("key", "value", "limit", "base", "shown"),
    [
        ("peak_memory_increase", 0.5, 0.05, 2.0**31, ("+50%", "+5%", "base 2 GiB")),
        ("peak_memory_overhead_ceiling", 0.5, 0.05, 2.0**31, ("+50%", "+5%", "anchor 2 GiB")),
        ("spilled_registers_ceiling", 36.0, 0.0, 4.0, ("36", "0", "base 4")),
        ("repeat_spread_ceiling", 0.001, 0.0, 0.0, ("0.1%", "0%", "base 0%")),
    ],
)
def test_pages_show_each_in_its_unit(make_report, key, value, limit, base, shown):
    row = {"limit_key": key, "backend": "gproj", "case": CASE, "slice": None, "verdict": "fail", "message": "m"}
    found = view(
        row
        | {"value": value, "limit": limit, "base": base, "worst": None, "low": None, "high": None}
        | {"required": True}
    )
    assert (found.value, found.limit, found.text) == shown


def test_every_limit_knows_the_curve_on_which_its_failures_are_marked():
    curves = {key: metric_of_limit(key) for key in GATE_LIMITS}
    without = [key for key, metric in curves.items() if metric is None]
    assert without == ["spilled_registers_ceiling", "repeat_spread_ceiling"]
    assert curves["dq_symmetry_ceiling"] == "dq_symmetry"
    assert limit_of_metric({"dq_symmetry_ceiling": 0.002}, "dq_symmetry") == 0.002
    assert limit_of_metric({"dk_worst_ceiling": 0.5}, "dk_error_worst") == 0.5
    assert limit_of_metric({"dk_error_ratio": 1.05}, "dk_error") is None
    assert curves["dk_worst_ceiling"] == "dk_error_worst"
    assert {curves["step_overhead_increase"], curves["step_overhead_ceiling"]} == {"step_ratio_anchor"}
    assert {curves["kernel_time_increase"]} == {"forward_backward_ratio_anchor"}
    assert {curves["peak_memory_increase"], curves["peak_memory_overhead_ceiling"]} == {"peak_memory"}
