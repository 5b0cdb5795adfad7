"""The example reports keep the contract and show what they are there to show."""

import gzip
from pathlib import Path

import pytest

from gprojci_suite import peers
from gprojci_suite.contract import Report, codec
from gprojci_suite.contract.training import TrainingReport, is_training

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in EXAMPLES.glob("*.json.gz"))


def unpacked(name: str) -> str:
    """A report as it was written."""
    return gzip.decompress((EXAMPLES / f"{name}.json.gz").read_bytes()).decode()


def example(name: str) -> Report:
    """A report of `bench` as it was written, unpacked."""
    return Report.loads(unpacked(name))


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
