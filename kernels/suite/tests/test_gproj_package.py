"""The package under test gives on the captured failure what its emulator gives."""

import pytest
import torch

from gproj import attention, zerosum_attention
from gprojci_suite import accuracy, inputs, metrics, peers

DQ = {"emulated-gproj": (0.20, 0.20, 0.19, 0.19), "emulated-zerosum": (0.25, 0.22, 0.20, 0.20)}
DK = {"emulated-gproj": (47, 1.8, 1.4, 1.1), "emulated-zerosum": (0.34, 0.25, 0.23, 0.20)}


@pytest.mark.parametrize(
    ("function", "emulator"), [(attention, "emulated-gproj"), (zerosum_attention, "emulated-zerosum")]
)
def test_late_keybias(function, emulator) -> None:  # type: ignore[no-untyped-def]
    made = inputs.load("late-keybias")
    tensors = made.layers["L1"]
    expected = accuracy.references(made)["L1"]
    results = []
    for implementation in (function, peers.get(emulator).attention):
        leaves = [x.clone().requires_grad_() for x in (tensors.q, tensors.k, tensors.v)]
        o = implementation(*leaves, causal=True, softmax_scale=made.softmax_scale)
        results.append([o.detach(), *torch.autograd.grad(o, leaves, tensors.do)])
    compute = metrics.get("rel_err").compute

    def percent(result: torch.Tensor, reference: torch.Tensor) -> list[float]:
        return [100 * compute(a.double(), b, 1.0) for a, b in zip(result[0], reference[0], strict=True)]

    assert percent(results[0][1], expected.dq) == pytest.approx(DQ[emulator], rel=0.05)
    assert percent(results[0][2], expected.dk) == pytest.approx(DK[emulator], rel=0.05)
    for ours, emulated in zip(*results, strict=True):
        assert float((ours.double() - emulated.double()).norm()) <= 2e-3 * float(emulated.double().norm())
