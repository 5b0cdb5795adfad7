"""The training report: what goes in comes out, and whatever breaks the contract is refused with the path at fault."""

import json
from dataclasses import replace
from importlib import resources
from statistics import median
from typing import Any

import pytest
import training_example as example

from gprojci_suite.contract import ContractError, codec
from gprojci_suite.contract.training import (
    MAX_POINTS,
    Curve,
    LayerSeries,
    TrainingData,
    TrainingModel,
    TrainingOptimizer,
    TrainingReport,
    TrainingRun,
    TrainingSetup,
    is_training,
)


def test_round_trip() -> None:
    report = example.report()
    assert TrainingReport.loads(report.dumps()) == report
    assert report.runs[0].final_dq_error == pytest.approx(0.002 * 8**3)
    assert is_training(report.to_json())
    assert not is_training({"schema_version": 1})


def test_what_is_not_finite_and_what_is_not_measured_survive() -> None:
    layer = LayerSeries(0, gradient_norm=(float("nan"), float("inf")))
    run = replace(example.run("fp32", 0, 1.0), measured_steps=(1, 2), layers=(layer,), captures=())
    again = TrainingReport.loads(example.report((run,)).dumps()).runs[0]
    assert codec.encode(again) == codec.encode(run)
    assert again.final_dq_error is None


def test_a_tenth_of_the_steps_stay_below_the_fast_time() -> None:
    times = (float("nan"), *(0.001 * place for place in range(31, 0, -1)))
    run = example.run("fp32", 0, 1.0)
    steps = tuple(range(1, len(times) + 1))
    curve = Curve(steps, (1.0,) * len(steps), (1.0,) * len(steps), times)
    assert replace(run, curve=curve).fast_step_seconds == pytest.approx(0.004)
    assert replace(run, curve=replace(curve, step_seconds=times[:1])).fast_step_seconds is None
    assert replace(run, curve=replace(curve, step_seconds=None)).fast_step_seconds is None


def broken(change: Any) -> str:
    """The path that a changed report is refused with."""
    value = json.loads(example.report().dumps())
    change(value)
    with pytest.raises(ContractError) as error:
        TrainingReport.from_json(value)
    return error.value.path


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda v: v.update(kind="gprojci-training/2"), "$.kind"),
        (lambda v: v.update(name="../x"), "$.name"),
        (lambda v: v.update(created_at="2026-11-30T09:00:00+02:00"), "$.created_at"),
        (lambda v: v["setup"]["model"].update(positions="none"), "$.setup.model.positions"),
        (lambda v: v["setup"].pop("steps"), "$.setup.steps"),
        (lambda v: v["runs"][0].update(extra=1), "$.runs[0].extra"),
        (lambda v: v["runs"][0].update(status="diverged"), "$.runs[0].detail"),
        (lambda v: v["runs"][0].update(steps=39), "$.runs[0].curve.steps"),
        (lambda v: v["runs"][0].update(steps=41), "$.runs[0].steps"),
        (lambda v: v["runs"][0].update(side_by_side=3), "$.runs[0].step_seconds"),
        (lambda v: v["runs"][0].update(final_loss=None), "$.runs[0].final_loss"),
        (lambda v: v["runs"][0].update(initial_weights="sha256:x"), "$.runs[2].initial_weights"),
        (lambda v: v["runs"][1].update(seed=0), "$.runs[1]"),
        (lambda v: v["runs"][0]["curve"]["loss"].pop(), "$.runs[0].curve.loss"),
        (lambda v: v["runs"][0]["curve"]["steps"].reverse(), "$.runs[0].curve"),
        (lambda v: v["runs"][0]["layers"][1]["dq_error_worst"].pop(), "$.runs[0].layers[1].dq_error_worst"),
        (lambda v: v["runs"][0]["layers"][1].update(layer=0), "$.runs[0].layers"),
    ],
)
def test_refused(change: Any, path: str) -> None:
    assert broken(change) == path


def test_a_series_that_is_too_long_is_refused() -> None:
    steps = tuple(range(1, MAX_POINTS + 2))
    with pytest.raises(ContractError, match=f"{MAX_POINTS + 1} points"):
        Curve(steps, (1.0,) * len(steps), (1.0,) * len(steps)).check("$")


def test_the_run_behind_a_bundled_capture_fits() -> None:
    log = json.loads((resources.files("gprojci_suite") / "captures" / "late-keybias.training.json").read_text())
    steps = tuple(entry["step"] for entry in log)
    columns = ("dq_error_median", "dq_error_worst", "key_offset_median", "key_offset_worst", "largest_logit")
    columns += ("top_probability",)
    layers = tuple(
        LayerSeries(layer, **{name: tuple(e["rows"][layer][1 + i] for e in log) for i, name in enumerate(columns)})
        for layer in range(8)
    )
    loss, norm = (tuple(entry[key] for entry in log) for key in ("loss", "gnorm"))
    run = TrainingRun(
        "fa3", 0, "completed", None, 4000, 360.0, 1, None, loss[-1], 1, max(norm), None, Curve(steps, loss, norm),
        steps, layers,
    )  # fmt: skip
    setup = TrainingSetup(
        TrainingModel(8, 512, 8, 1024, "learned", ("q", "k", "v")),
        TrainingData("bytes of source text", None, 16),
        TrainingOptimizer(0.02, 0.003),
        4000,
        1000,
    )
    story = replace(example.report((run,), "late-keybias"), ruler=None, setup=setup, repro="")
    again = TrainingReport.loads(story.dumps()).runs[0]
    assert again.final_dq_error == pytest.approx(43.07, abs=0.01)
    assert median(column.dq_error_median[-1] for column in again.layers if column.dq_error_median) < 0.3
