"""Shifts are exact, exact attention does not move, and a backend that leaks the keys' offset shows it."""

import sys

import pytest
import torch

from gprojci_suite import emulation, inputs, reference, symmetry
from gprojci_suite.contract import ContractError
from gprojci_suite.contract.spec import LimitsSpec
from gprojci_suite.contract.vocabulary import RESPONSES
from gprojci_suite.inputs import InputError
from gprojci_suite.member import Case, Launch
from gprojci_suite.run import layer_cases
from gprojci_suite.session import Session
from gprojci_suite.throughput import shape_case

GROUPED = "synthetic:offset?heads=4&kv_heads=2&seq=96&head_dim=32"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("offset", [0.0, 300.0, -5.0])
def test_shifts_change_no_bit(dtype: torch.dtype, offset: float) -> None:
    x = (torch.randn(2, 3, 50, 16, generator=torch.Generator().manual_seed(0)) + offset).to(dtype)
    x[:, :, :, 3] = 7.0  # a dimension without any spread
    base, shifted = symmetry.on_grid(x)
    moved = shifted.double() - base.double()
    assert base.dtype == shifted.dtype == dtype
    assert torch.equal(moved, moved[:, :, :1].expand_as(moved)), "one vector for all keys of a head"
    assert float(moved.abs().amin()) > 0
    deviation = x.double() - x.double().mean(dim=2, keepdim=True)
    spread = deviation[..., :3].abs().amax(dim=2)
    assert bool((moved[:, :, 0, :3].abs() >= 6.99 * spread).all())
    assert float((base.double() - deviation)[..., :3].abs().max()) < float(spread.max()) / 16


def test_what_cannot_be_shifted_exactly_is_refused() -> None:
    with pytest.raises(InputError, match="can be shifted exactly"):
        symmetry.on_grid(torch.randn(1, 1, 8, 8).double().mul(1e-7).to(torch.float16))


def exact(case: Case) -> dict[str, torch.Tensor]:
    t = case.tensors
    found = reference.attention(t.q, t.k, t.v, t.do, causal=case.causal, softmax_scale=case.softmax_scale)
    return {"o": found.o, "dq": found.dq, "dk": found.dk, "dv": found.dv}


@pytest.mark.parametrize("name", [GROUPED, f"{GROUPED}&causal=0", f"{GROUPED}&seq_k=120"])
def test_exact_attention_does_not_move(name: str) -> None:
    probe = symmetry.probe(next(iter(layer_cases(inputs.load(name)).values())))
    found = symmetry.responses_of(
        {which: exact(getattr(probe, which)) for which in ("plain", "grid", "keys", "values")}
    )
    for response in RESPONSES:
        assert float((found[response].movement / found[response].norm).max()) < 1e-9, response
    assert not torch.equal(exact(probe.values)["o"], exact(probe.grid)["o"]), "o moves with the values"


def test_the_row_sum_of_a_rounded_result_is_as_large_as_its_rounding() -> None:
    probe = symmetry.probe(next(iter(layer_cases(inputs.load("synthetic:random?seq=512")).values())))
    rounded = {name: tensor.bfloat16() for name, tensor in exact(probe.plain).items()}
    found = symmetry.responses_of(dict.fromkeys(("plain", "grid", "keys", "values"), rounded))["dk_row_sum"]
    assert 0.0008 < float((found.movement / found.norm).max()) < 0.0035


def test_backends_are_told_apart_also_where_no_reference_is_made() -> None:
    cases = {case.name: {"S": case} for case in (shape_case("1x2x640x32", True, 0), shape_case("1x1x96x32", False, 0))}
    launches = [Launch(name, "ruler", "peer", sys.executable) for name in ("emulated-fa3", "emulated-gproj", "fp32")]
    lines: list[str] = []
    with Session(launches, "cpu", LimitsSpec()) as session:
        list(session.start())
        found = symmetry.measure(session, cases, lines.append)
    medians = {(s.backend, s.case, s.response): s.median for s in found.summary}
    assert len(found.responses) == 3 * 4 * (2 + 1)
    assert lines[-1] == "symmetry fp32@ruler 1x1x96x32.full.bfloat16 6/6 ok"
    for case in cases:
        assert medians["emulated-fa3", case, "dq_key_shift"] > 0.01
        assert medians["emulated-gproj", case, "dq_key_shift"] < 0.003
        assert medians["fp32", case, "dq_key_shift"] < 1e-4
        assert medians["emulated-gproj", case, "dk_value_shift"] > 0.005, "it leaves dk as it found it"


def test_vanishing_slices_and_what_is_not_finite() -> None:
    probe = symmetry.probe(shape_case("1x2x64x16", True, 0))
    results = {which: exact(getattr(probe, which)) for which in ("plain", "grid", "keys", "values")}
    results["grid"]["dq"][0, 0] *= 1e-6
    results["keys"]["dq"] = results["grid"]["dq"].clone()
    results["keys"]["dq"][0, 1, 0, 0] = torch.nan

    class Fixed:
        def compute(self, member: object, case: Case) -> dict[str, torch.Tensor]:
            which = next(name for name in ("grid", "keys", "values", "plain") if getattr(probe, name) is case)
            return results[which]

    member = Session([Launch("mine", "head", "subject", sys.executable, "m:f")], "cpu", LimitsSpec()).members[0]
    found = symmetry._of_backend(Fixed(), member, "case", {"S": probe})  # type: ignore[arg-type]
    shifts = {item.slice: item for item in found if item.response == "dq_key_shift"}
    assert shifts["S.b0.h0"].vanishing
    assert shifts["S.b0.h1"].value == float("inf")
    (line,) = [line for line in symmetry.summarise(found) if line.response == "dq_key_shift"]
    assert (line.median, line.worst_slice, line.slices, line.vanishing) == (float("inf"), "S.b0.h1", 2, 1)


def test_a_summary_without_counted_slices_has_no_median() -> None:
    from gprojci_suite.contract import codec
    from gprojci_suite.contract.symmetry import SymmetrySummary

    line = {"backend": "a", "revision": "head", "case": "c", "response": "dk_row_sum", "median": "NaN", "worst": "NaN"}
    line |= {"worst_slice": "", "slices": 1, "vanishing": 1}
    assert codec.decode(SymmetrySummary, line).vanishing == 1
    for wrong in ({"median": 0.1}, {"vanishing": 2}, {"response": "dv_row_sum"}):
        with pytest.raises(ContractError):
            codec.decode(SymmetrySummary, {**line, **wrong})


def test_the_emulated_leak_grows_with_the_shift() -> None:
    """The response is the row sum of the rounded dS times the shift, so half the shift moves dq half as far."""
    case = shape_case("1x1x128x32", True, 0)
    probe = symmetry.probe(case)
    half = probe.grid.tensors.k.double() + (probe.keys.tensors.k.double() - probe.grid.tensors.k.double()) / 2
    assert torch.equal(half.bfloat16().double(), half)

    def dq(keys: torch.Tensor) -> torch.Tensor:
        t = probe.grid.tensors
        q = t.q.clone().requires_grad_()
        rounding = emulation.Rounding(unfused=False)
        o = emulation.attention(q, keys, t.v, causal=True, softmax_scale=case.softmax_scale, rounding=rounding)
        return torch.autograd.grad(o, q, t.do)[0].double()

    base = dq(probe.grid.tensors.k)
    ratio = float((dq(probe.keys.tensors.k) - base).norm() / (dq(half.bfloat16()) - base).norm())
    assert ratio == pytest.approx(2, rel=0.1)
