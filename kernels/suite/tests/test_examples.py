"""The example reports keep the contract and show what they are there to show."""

import gzip
from pathlib import Path
from statistics import fmean

import pytest

from gprojci_suite import peers
from gprojci_suite.contract import Report, codec
from gprojci_suite.contract.training import TrainingReport, TrainingRun, is_training

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in EXAMPLES.glob("*.json.gz"))


def unpacked(name: str) -> str:
    """A report as it was written."""
    return gzip.decompress((EXAMPLES / f"{name}.json.gz").read_bytes()).decode()


def example(name: str) -> Report:
    """A report of `bench` as it was written, unpacked."""
    return Report.loads(unpacked(name))


def training(name: str) -> dict[tuple[str, int], TrainingRun]:
    """Runs of a training report by backend and seed."""
    return {(run.backend, run.seed): run for run in TrainingReport.loads(unpacked(name)).runs}


def worst(run: TrainingRun, column: str) -> float:
    """Largest value of a column over layers and steps."""
    return max(max(getattr(layer, column)) for layer in run.layers)


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_the_contract(name: str) -> None:
    if is_training(codec.loads(unpacked(name))):
        training = TrainingReport.loads(unpacked(name))
        assert training.environment is not None
        assert training.environment.hardware == "h200"
        return
    report = example(name)
    assert report.environment.hardware == "h200"
    for entry in report.backends:
        if entry.role != "subject":
            peers.check(entry.backend)


def test_a_pull_request_is_faster_and_wrong() -> None:
    report = example("h200-pull-request")
    assert report.accuracy is not None
    assert report.throughput is not None
    assert {entry.status for entry in report.backends} == {"ok"}
    lines = {(line.backend, line.revision, line.input): line for line in report.accuracy.summary if line.tensor == "dq"}
    assert lines["gproj", "base", "late-keybias"].worst < 0.005
    assert lines["gproj", "head", "late-keybias"].worst > 40
    compared = {
        (item.backend, item.against_revision, item.case, item.control): item
        for item in report.throughput.comparisons
        if item.revision == "head" and item.pass_ == "forward_backward"
    }
    for case in ("4x16x4096x128.causal.bfloat16", "8x16x2048x64.causal.bfloat16"):
        assert compared["gproj", "base", case, False].high < 0.95, "without its projection"
        for same in (("zerosum", "base", case, False), ("gproj", "head", case, True)):
            assert compared[same].low < 1 < compared[same].high
            assert compared[same].high - compared[same].low < 0.012
    assert not any(check.verdict == "disagrees" for check in report.throughput.clock)


def test_every_peer_is_measured_on_every_bundled_input() -> None:
    report = example("h200-peers")
    assert report.accuracy is not None
    assert report.throughput is not None
    alone = {entry.backend for entry in report.backends if "+" not in entry.backend}
    assert alone == set(peers.names())
    unmeasured = {entry.backend for entry in report.backends if entry.status != "ok"}
    assert unmeasured == {"fa2", "fa2-unfused"}, "the package flash-attn was not installed there"
    found = {(line.backend, line.input) for line in report.accuracy.summary}
    names = {entry.backend for entry in report.backends} - unmeasured
    assert found == {(name, item) for name in names for item in ("early-keybias", "early-rope", "late-keybias")}
    assert {m.backend for m in report.throughput.measurements} == names
    assert len({m.case for m in report.throughput.measurements}) == 2


def test_the_surface_shows_who_grows_with_the_offset() -> None:
    report = example("h200-surface")
    assert report.surface is not None
    worst = {p.backend: p.median for p in report.surface.points if (p.ratio, p.logit_std, p.tensor) == (300, 16, "dq")}
    assert min(worst[name] for name in ("fa3", "fa4", "sdpa-cudnn", "sdpa-efficient")) > 1.5
    assert worst["fp32-tf32"] > 0.01
    assert max(worst[name] for name in ("fp32-fast", "emulated-zerosum")) < 0.003


@pytest.mark.parametrize("name", ["h200-step-d64", "h200-step-d128"])
def test_a_training_step_is_as_much_slower_as_attention_takes_more_of_it(name: str) -> None:
    report = example(name)
    assert report.step is not None
    shares = {m.backend: m.attention_share for m in report.step.measurements}
    ratios = {c.backend: c.ratio for c in report.step.comparisons if not c.control}
    assert {"sdpa-flash", "sdpa-cudnn", "sdpa-efficient"} <= ratios.keys()
    for backend, ratio in ratios.items():
        # What is not attention takes as long in every step.
        assert ratio == pytest.approx((1 - shares["fa3"]) / (1 - shares[backend]), rel=0.02)
    assert all(0.99 < c.low < c.high < 1.01 for c in report.step.comparisons if c.control)
    assert all(m.peak_memory_bytes for m in report.step.measurements)


@pytest.mark.parametrize("name", ["h200-training-grown", "h200-training-drifted"])
def test_the_loss_parts_where_a_wrong_dq_meets_far_keys_and_a_cold_softmax(name: str) -> None:
    runs = training(name)
    assert {(run.status, run.seed) for run in runs.values()} == {("completed", seed) for seed in range(3)}
    for (backend, seed), run in runs.items():
        above = (run.final_loss or 0.0) - (runs["fp32", seed].final_loss or 0.0)
        norm, error = run.late_gradient_norm or 0.0, run.final_dq_error or 0.0
        if backend in ("fa3", "unfused"):
            assert (above > 0.6, norm > 50, error > 10) == (True, True, True)
            assert run.alarm_step == run.measured_steps[0]
        else:
            assert (abs(above) < 0.1, norm < 5, error < 0.005) == (True, True, True)


def test_a_step_takes_as_much_longer_as_its_attention_where_the_host_keeps_up() -> None:
    runs = training("h200-training-filled")
    assert {run.status for run in runs.values()} == {"completed"}
    median = {key: run.step_seconds or 0.0 for key, run in runs.items()}
    fast = {key: run.fast_step_seconds or 0.0 for key, run in runs.items()}
    # Of fa3's third run and of gproj's second and third the host was late, in the median of the steps at least.
    assert all(median[key] > 1.035 * fast["fa3", 0] for key in (("fa3", 2), ("gproj", 1), ("gproj", 2)))
    assert 1.02 < median["gproj", 0] / median["fa3", 0] < 1.025
    assert all(1.01 < median["zerosum", seed] / median["fa3", seed] < 1.015 for seed in (0, 1))
    for backend in ("gproj", "zerosum"):
        assert fast[backend, 0] == pytest.approx(fast[backend, 1], rel=0.01)
        assert 1.0 < fast[backend, 0] / fast["fa3", 0] < 1.03


def test_a_wrong_dk_alone_lets_the_keys_drift_on() -> None:
    runs = training("h200-training-grown")
    for seed in range(3):
        loss = {backend: runs[backend, seed].final_loss or 0.0 for backend in ("gproj", "zerosum", "fp32")}
        assert loss["gproj"] - loss["fp32"] > 0.03 > 0.02 > abs(loss["zerosum"] - loss["fp32"])
        drift = {backend: worst(runs[backend, seed], "key_offset_worst") for backend in loss}
        assert drift["gproj"] > 1.2 * max(drift["zerosum"], drift["fp32"])


def test_training_shows_wrong_gradients_and_no_other_loss() -> None:
    runs = training("h200-training-keybias")
    assert {run.status for run in runs.values()} == {"completed"}
    backends = {backend for backend, _ in runs}
    losses = {key: run.final_loss or 0.0 for key, run in runs.items()}
    for seed in (0, 1):
        dq = {backend: worst(runs[backend, seed], "dq_error_worst") for backend in backends}
        assert min(dq["fa3"], dq["unfused"]) > 0.25 > 0.01 > max(dq["gproj"], dq["zerosum"])
        assert dq["fp32"] < 1e-4
        dk = {backend: worst(runs[backend, seed], "dk_error_worst") for backend in backends}
        assert min(dk["fa3"], dk["unfused"], dk["gproj"]) > 0.1 > 0.01 > dk["zerosum"] > dk["fp32"]
        of_seed = [losses[backend, seed] for backend in backends]
        assert max(of_seed) - min(of_seed) < abs(losses["fp32", 0] - losses["fp32", 1])
    # With seed 0 the alarm read no rows yet; processes shared the device.
    assert {key for key, run in runs.items() if run.alarm_step is not None} == {("fa3", 1), ("unfused", 1)}
    assert all(run.step_seconds is None for run in runs.values())


def test_keys_of_the_first_layer_drift_where_dk_is_wrong() -> None:
    runs = training("h200-training-keybias")
    offsets = {}
    for key, run in runs.items():
        late = zip(run.measured_steps, run.layers[0].key_offset_worst or (), strict=True)
        offsets[key] = fmean(offset for step, offset in late if step > 3000)
    for seed in (0, 1):
        wrong = min(offsets[name, seed] for name in ("fa3", "unfused", "gproj"))
        assert wrong > 1.4 * max(offsets[name, seed] for name in ("zerosum", "fp32"))
