"""Metrics, vanishing slices and the summary."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from gprojci_suite import accuracy, metrics
from gprojci_suite.contract.report import Slice
from gprojci_suite.reference import AttentionResult


def compute(name: str, result: Tensor, reference: Tensor, largest: float = 1.0) -> float:
    return metrics.get(name).compute(result.double(), reference.double(), largest)


def test_metrics_are_the_fields_of_a_slice() -> None:
    fields = {field.name for field in dataclasses.fields(Slice)}
    identity = {"backend", "revision", "input", "slice", "layer", "batch", "head", "tensor", "vanishing"}
    assert set(metrics.names()) == fields - identity
    for name in metrics.names():
        metric = metrics.get(name)
        assert name == metric.NAME
        assert metric.UNIT
        assert metric.BETTER in ("lower", "higher", "none")


def test_unknown_metric() -> None:
    with pytest.raises(KeyError):
        metrics.get("nothing")


def test_values_by_hand() -> None:
    reference = torch.tensor([[3.0, 4.0]])
    result = torch.tensor([[3.0, 4.5]])
    assert compute("rel_err", result, reference) == pytest.approx(0.1)
    assert compute("scaled_abs_err", result, reference, 50.0) == pytest.approx(0.01)
    assert compute("cosine", result, reference) == pytest.approx(27 / (5 * math.hypot(3, 4.5)))
    assert compute("p999", result, reference) == pytest.approx(0.1)
    assert compute("reference_norm", result, reference) == 5.0
    assert compute("norm_ratio", result, reference) == pytest.approx(math.hypot(3, 4.5) / 5)
    assert compute("p50", result, reference) == 0.0
    assert compute("p100", result, reference) == pytest.approx(0.1)


def test_percentiles_of_the_element_errors() -> None:
    reference = torch.ones(10, 100)
    result = reference + torch.arange(1, 1001).view(10, 100) / 100
    wanted = {"p50": 500, "p90": 900, "p99": 990, "p999": 999, "p100": 1000}
    for name, rank in wanted.items():
        assert compute(name, result, reference) == pytest.approx(rank / 1000, rel=1e-4)


def test_p999_leaves_out_a_thousandth() -> None:
    reference = torch.ones(100, 100)
    result = reference.clone()
    result[0, :10] += 5.0
    assert compute("p999", result, reference) == 0.0
    result[0, 10] += 10.0
    assert compute("p999", result, reference) == pytest.approx(0.5)


def test_p999_is_not_steered_by_rows_without_gradient() -> None:
    reference = torch.ones(100, 100)
    reference[:50] = 1e-30
    result = reference + 1e-9
    assert compute("p999", result, reference) < 1e-5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nonfinite_is_never_a_good_value(bad: float) -> None:
    reference = torch.ones(4, 4)
    result = reference.clone()
    result[1, 1] = bad
    assert compute("nonfinite", result, reference) == 1
    assert not compute("rel_err", result, reference) < 1
    assert not compute("p999", result, reference) < 1
    assert not compute("cosine", result, reference) > 0.99
    assert not compute("p100", result, reference) < 1
    assert not compute("norm_ratio", result, reference) < 2


def test_zero_reference() -> None:
    zero = torch.zeros(2, 2)
    assert compute("rel_err", zero, zero, 0.0) == compute("scaled_abs_err", zero, zero, 0.0) == 0.0
    assert compute("cosine", zero, zero) == 1.0
    assert compute("p999", zero, zero) == compute("p50", zero, zero) == 0.0
    assert compute("norm_ratio", zero, zero) == 1.0
    assert compute("norm_ratio", zero + 1, zero) == math.inf
    assert compute("rel_err", zero + 1, zero) == compute("p999", zero + 1, zero) == math.inf


def results(scale: float) -> AttentionResult:
    """Two heads; the gradients of head 1 are `scale` times those of head 0."""
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(1, 1, 16, 8, generator=generator, dtype=torch.float64)
    both = torch.cat([head, head * scale], 1)
    return AttentionResult(both, both, both, both)


@pytest.mark.parametrize(("scale", "vanishing"), [(1e-3, False), (1.01e-4, False), (0.99e-4, True), (1e-13, True)])
def test_vanishing_slices_stay_out_of_the_summary(scale: float, vanishing: bool) -> None:
    expected = results(scale)
    wrong = {name: getattr(expected, name).clone() for name in ("o", "dq", "dk", "dv")}
    for tensor in wrong.values():
        tensor[:, 0] *= 1.01
        tensor[:, 1] *= 1e6
    found = accuracy.slices("x", "ruler", "made", {"L": wrong}, {"L": expected})
    dq = {item.slice: item for item in found if item.tensor == "dq"}
    assert not dq["L.b0.h0"].vanishing
    assert dq["L.b0.h1"].vanishing is vanishing
    assert dq["L.b0.h1"].rel_err > 1e5
    assert dq["L.b0.h1"].scaled_abs_err == pytest.approx((1e6 - 1) * scale)
    summary = next(item for item in accuracy.summarise(found, {}) if item.tensor == "dq")
    assert (summary.slices, summary.vanishing) == (2, int(vanishing))
    assert (summary.worst == pytest.approx(0.01)) is vanishing
    assert summary.worst_slice == ("L.b0.h0" if vanishing else "L.b0.h1")


def test_nan_is_the_worst_slice() -> None:
    expected = results(1.0)
    wrong = {name: getattr(expected, name).clone() for name in ("o", "dq", "dk", "dv")}
    wrong["dk"][0, 1, 3, 3] = math.nan
    wrong["dk"][0, 0] *= 100
    summary = {
        s.tensor: s for s in accuracy.summarise(accuracy.slices("x", "head", "i", {"L": wrong}, {"L": expected}), {})
    }
    assert math.isnan(summary["dk"].worst)
    assert summary["dk"].worst_slice == "L.b0.h1"
    assert summary["dk"].nonfinite == 1
    assert summary["dk"].median == math.inf
    assert summary["dq"].nonfinite == 0
    assert summary["dq"].median == 0.0


def test_all_slices_vanish_only_together() -> None:
    expected = results(0.0)
    zero = AttentionResult(*(torch.zeros_like(x) for x in (expected.o, expected.dq, expected.dk, expected.dv)))
    same = {name: getattr(zero, name) for name in ("o", "dq", "dk", "dv")}
    assert not any(item.vanishing for item in accuracy.slices("x", "head", "i", {"L": same}, {"L": zero}))


def test_spread_is_zero_where_the_run_repeats_and_the_change_of_the_median_where_not() -> None:
    first = [_slice("L1.b0.h0", 0.002), _slice("L1.b0.h1", 0.004)]
    again = [_slice("L1.b0.h0", 0.0021), _slice("L1.b0.h1", 0.0042)]
    key = ("x", "head", "i", "dq")
    assert accuracy.spreads(first, None) == {key: 0.0}
    assert accuracy.spreads(first, first) == {key: 0.0}
    assert accuracy.spreads(first, again)[key] == pytest.approx(0.05)
    (line,) = accuracy.summarise(first, accuracy.spreads(first, again))
    assert (line.median, line.spread) == (0.003, pytest.approx(0.05))
    assert accuracy.summarise(first, {})[0].spread is None


def _slice(name: str, error: float) -> Slice:
    return Slice("x", "head", "i", name, "L1", 0, int(name[-1]), "dq", error, error, error, 1.0, 1.0, 0, False)
