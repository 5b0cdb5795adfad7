"""The table of a training report: completed runs alone, and what befell the others."""

from dataclasses import replace

import training_example

from gprojci_suite.training import table
from gprojci_suite.training.run import not_trained

STEPS = training_example.STEPS


def test_values_are_those_of_completed_runs() -> None:
    done = [replace(training_example.run("fa3", seed, 8.0), final_loss=0.4 + seed / 100) for seed in (0, 1)]
    early = replace(done[0], seed=2, status="ended_early", detail="SIGTERM\nended it", final_loss=9.75)
    early = replace(early, initial_weights="sha256:" + "2" * 64, largest_gradient_norm=99.0)
    text = table.render(training_example.report((*done, early)))
    row = text.splitlines()[2]
    assert row.split()[:4] == ["fa3", "2", "of", "3"]
    assert "0.4050 (0.4000 … 0.4100)" in row
    assert "102%" in row
    assert "9.75" not in row
    assert "99" not in row
    assert f"fa3 seed 2: ended_early at step {STEPS}, loss 9.7500: SIGTERM" in text.splitlines()


def test_a_loss_is_compared_with_that_of_the_same_seed() -> None:
    losses = {("fa3", 0): 2.5, ("fa3", 1): 2.25, ("fa3", 2): 9.0, ("fp32", 0): 1.0, ("fp32", 1): 2.0}
    runs = [replace(training_example.run(*key, 1.0), final_loss=loss) for key, loss in losses.items()]
    early = replace(training_example.run("fp32", 2, 1.0), status="ended_early", detail="ended", final_loss=1.0)
    lines = table.render(training_example.report((*runs, early))).splitlines()
    assert "minus fp32" in lines[1]
    assert "+0.8750 (+0.2500 … +1.5000)" in lines[2]
    assert lines[3].split()[8] == "–"


def test_the_norm_of_the_second_half_leaves_the_first_steps_out() -> None:
    run = training_example.run("fa3", 0, 1.0)
    norms = tuple(20.0 if step < STEPS / 2 else 0.25 for step in run.curve.steps)
    run = replace(run, largest_gradient_norm=20.0, curve=replace(run.curve, gradient_norm=norms))
    row = table.render(training_example.report((run,))).splitlines()[2]
    assert row.split()[6:8] == ["20", "0.25"]


def test_a_step_has_its_median_and_what_the_fastest_tenth_stay_below() -> None:
    run = training_example.run("fa3", 0, 1.0)
    assert table.render(training_example.report((run,))).splitlines()[2].split()[-4:] == ["50", "ms", "50", "ms"]
    run = replace(run, curve=replace(run.curve, step_seconds=(*(0.06,) * (len(run.curve.steps) - 4), *(0.042,) * 4)))
    assert table.render(training_example.report((run,))).splitlines()[2].split()[-4:] == ["50", "ms", "42", "ms"]
    slow = replace(run, step_seconds=1.0625, largest_gradient_norm=2513.0)
    row = table.render(training_example.report((slow,))).splitlines()[2].split()
    assert ("2513" in row, row[-4:]) == (True, ["1062", "ms", "42", "ms"])
    shared = replace(run, side_by_side=2, step_seconds=None, curve=replace(run.curve, step_seconds=None))
    assert table.render(training_example.report((shared,))).splitlines()[2].split()[-2:] == ["–", "–"]


def test_an_error_is_shown_at_its_worst_and_at_the_end() -> None:
    run = training_example.run("fa3", 0, 1.0)
    series = tuple(replace(layer, dq_error_worst=(0.01, 0.5, float("nan"), 0.02)) for layer in run.layers)
    row = table.render(training_example.report((replace(run, layers=series),))).splitlines()[2]
    assert "2%" in row
    assert "50%" in row


def test_runs_that_never_began_are_one_line_for_each_reason() -> None:
    why = "the session's 9 s were over before it began"
    absent = [not_trained(name, seed, "ended_early", why) for name, seed in (("fa3", 1), ("fa3", 2), ("fp32", 2))]
    failed = not_trained("gproj", 0, "unsupported", "no GPU")
    # It had its weights, and was stopped in its first step.
    stopped = replace(not_trained("zerosum", 0, "ended_early", "ended"), initial_weights="sha256:" + "0" * 64)
    report = training_example.report((training_example.run("fa3", 0, 1.0), *absent, failed, stopped))
    lines = table.render(report).splitlines()
    assert lines[2].split()[:4] == ["fa3", "1", "of", "3"]
    assert lines[3].split()[:5] == ["fp32", "0", "of", "1", "–"]
    assert lines[6:] == [
        "gproj seed 0: unsupported at step 0: no GPU",
        "zerosum seed 0: ended_early at step 0: ended",
        f"not begun, {why}: fa3 seeds 1, 2; fp32 seed 2",
    ]
