"""Interleaving, the control, and pairs that are added until the interval decides; the processes are stand-ins."""

import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from gprojci_suite.answers import StepSeconds
from gprojci_suite.audit import Audit
from gprojci_suite.ceilings import Probe, attention_flops
from gprojci_suite.contract.spec import ThroughputSpec
from gprojci_suite.contract.timing import Ceilings, ClockCheck
from gprojci_suite.contract.vocabulary import PASSES, Agreement
from gprojci_suite.ending import Ending
from gprojci_suite.inputs import InputError
from gprojci_suite.member import Case, Launch, Member, control_of
from gprojci_suite.throughput import WARM_UP, measure, shape_case


class Scripted:
    """A session whose members take a scripted time; records the order in which they were asked."""

    def __init__(self, launches: list[Launch], seconds: dict[str, Callable[[int], float]]) -> None:
        self.members = [Member(launch, directory=None) for launch in launches]  # type: ignore[arg-type]
        self.seconds = seconds
        self.calls: list[str] = []
        self.processes: list[tuple[str, int]] = []

    device = "cpu"

    def over(self, what: str) -> bool:
        return False

    def check_clock(self, member: Member, case: Case, process: int = 0) -> bool:
        return True

    def check_single_calls(self, member: Member, case: Case) -> bool:
        return True

    def time(
        self, member: Member, case: Case, repeat: int = 1, process: int = 0, audit: Audit | None = None
    ) -> list[StepSeconds] | None:
        steps = []
        for _ in range(repeat):
            self.calls.append(member.launch.label)
            self.processes.append((member.launch.label, process % member.launch.processes))
            value = self.seconds[member.launch.label](len(self.calls))
            if value < 0:
                member.fail("runtime_error", "scripted")
                return None
            steps.append(StepSeconds(value, 2 * value))
        return steps


HEAD = Launch("gproj", "head", "subject", sys.executable, "m:f")
BASE = Launch("gproj", "base", "subject", sys.executable, "m:f")
ANCHOR = Launch("sdpa-math", "ruler", "anchor", sys.executable)
PEER = Launch("fp32", "ruler", "peer", sys.executable)
CASE = shape_case("1x1x16x16", True, 0)
SETTINGS = ThroughputSpec(("1x1x16x16",), pairs=20, max_pairs=80, margin=0.1)


def run(session: Scripted, settings: ThroughputSpec = SETTINGS):  # type: ignore[no-untyped-def]
    return measure(session, CASE, settings, 0, lambda line: None)  # type: ignore[arg-type]


def constant(value: float) -> Callable[[int], float]:
    return lambda call: value


def noisy_around(value: float) -> Callable[[int], float]:
    """So noisy that 80 pairs do not tell on which side of the value the median is."""
    return lambda call: value * math.exp(random.Random(call).gauss(0, 0.5))


def test_everything_is_compared() -> None:
    session = Scripted(
        [HEAD, BASE, control_of(HEAD), ANCHOR, PEER],
        {
            "gproj@head": constant(0.12),
            "gproj@head (control)": constant(0.12),
            "gproj@base": constant(0.1),
            "sdpa-math@ruler": constant(0.2),
            "fp32@ruler": constant(0.4),
        },
    )
    measurements, comparisons = run(session)
    ratios = {
        (c.backend, c.revision, c.against_backend, c.against_revision, c.control): c.ratio
        for c in comparisons
        if c.pass_ == "forward_backward"
    }
    assert ratios == {
        ("gproj", "head", "gproj", "base", False): pytest.approx(1.2),
        ("gproj", "head", "gproj", "head", True): pytest.approx(1.0),
        ("gproj", "head", "sdpa-math", "ruler", False): pytest.approx(0.6),
        ("gproj", "base", "sdpa-math", "ruler", False): pytest.approx(0.5),
        ("fp32", "ruler", "sdpa-math", "ruler", False): pytest.approx(2.0),
    }
    assert {(m.backend, m.revision) for m in measurements} == {
        ("gproj", "head"),
        ("gproj", "base"),
        ("sdpa-math", "ruler"),
        ("fp32", "ruler"),
    }
    assert all(c.pairs == 20 and c.case == "1x1x16x16.causal.bfloat16" for c in comparisons)


def test_rounds_are_interleaved_in_random_order() -> None:
    session = Scripted([HEAD, BASE], {"gproj@head": constant(10.0), "gproj@base": constant(1.0)})
    run(session)
    rounds = session.calls[-42:-2]  # the last two are audited
    firsts = [rounds[index] for index in range(0, 40, 2)]
    assert all({rounds[index], rounds[index + 1]} == {"gproj@head", "gproj@base"} for index in range(0, 40, 2))
    assert 4 < firsts.count("gproj@head") < 16


def test_undecided_pairs_are_doubled_up_to_the_cap() -> None:
    noisy = Scripted([HEAD, BASE], {"gproj@head": noisy_around(1.1), "gproj@base": constant(1.0)})
    _, comparisons = run(noisy)
    assert {c.pairs for c in comparisons} == {80}
    clear = Scripted([HEAD, BASE], {"gproj@head": constant(1.0), "gproj@base": constant(1.0)})
    assert {c.pairs for c in run(clear)[1]} == {20}


def test_without_a_base_the_anchor_is_what_must_be_decided() -> None:
    noisy = Scripted(
        [HEAD, ANCHOR, PEER],
        {
            "gproj@head": noisy_around(1.1),
            "sdpa-math@ruler": constant(1.0),
            "fp32@ruler": constant(1.1),
        },
    )
    pairs = {c.backend: c.pairs for c in run(noisy)[1]}
    assert pairs == {"gproj": 80, "fp32": 20}


def test_a_backend_that_fails_in_the_middle_is_left_out() -> None:
    session = Scripted(
        [HEAD, BASE, ANCHOR],
        {
            "gproj@head": constant(1.0),
            "gproj@base": lambda call: 1.0 if call < 40 else -1.0,
            "sdpa-math@ruler": constant(1.0),
        },
    )
    measurements, comparisons = run(session)
    assert {(m.backend, m.revision) for m in measurements} == {("gproj", "head"), ("sdpa-math", "ruler")}
    assert {(c.against_backend, c.pairs) for c in comparisons} == {("sdpa-math", 20)}


def of_processes(*slow: int) -> tuple[Scripted, ThroughputSpec]:
    """Head and base in four processes each; those in `slow` of head take twice the time, and head is undecided."""
    launches = [replace(launch, processes=4) for launch in (HEAD, BASE)]
    session = Scripted(launches, {})
    session.seconds = {
        "gproj@head": lambda call: 2.0 if session.processes[-1][1] in slow else 1.0,
        "gproj@base": constant(1.0),
    }
    return session, replace(SETTINGS, pairs=8, max_pairs=30, processes=4)


def test_a_ratio_belongs_to_the_process_of_its_index() -> None:
    session, settings = of_processes(1)
    _, comparisons = run(session, settings)
    for compared in comparisons:
        assert (compared.pairs, compared.processes) == (30, 4), "doubled to the cap, in the same order of processes"
        assert [ratio == 2.0 for ratio in compared.ratios] == [index % 4 == 1 for index in range(30)]
        assert compared.ratio == pytest.approx(2**0.25)
        assert compared.low < 1.0 < 2.0 < compared.high
    timed = session.processes[-62:-2]  # the last two are audited
    assert all(timed[index][1] == timed[index + 1][1] for index in range(0, 60, 2)), "both of a pair in process i mod 4"


def test_void_pairs_are_repeated_in_the_same_processes() -> None:
    session, settings = of_processes(1)
    _, comparisons = measure(session, CASE, settings, 0, lambda line: None, Throttled(4, 6))  # type: ignore[arg-type]
    assert {(c.pairs, c.void_pairs) for c in comparisons} == {(30, 3)}
    assert [ratio == 2.0 for ratio in comparisons[0].ratios] == [index % 4 == 1 for index in range(30)]
    session, settings = of_processes(1)
    _, comparisons = measure(session, CASE, settings, 0, lambda line: None, Throttled(12, 13))  # type: ignore[arg-type]
    assert {(c.pairs, c.void_pairs) for c in comparisons} == {(30, 2)}
    assert [ratio == 2.0 for ratio in comparisons[0].ratios] == [index % 4 == 1 for index in range(30)]


def test_too_few_rounds_for_all_processes_are_still_a_report() -> None:
    session, settings = of_processes(1)
    _, comparisons = measure(session, CASE, settings, 0, lambda line: None, Throttled(3, 1000))  # type: ignore[arg-type]
    assert {(c.pairs, c.processes) for c in comparisons} == {(2, 2)}
    for compared in comparisons:
        compared.check("$")


def test_every_process_is_warmed_up_before_any_is_timed() -> None:
    session, settings = of_processes()
    run(session, settings)
    warm = session.processes[: -2 * 9]
    assert set(warm) == {(label, process) for label in ("gproj@head", "gproj@base") for process in range(4)}


def test_progress_says_what_the_check_of_a_clock_read() -> None:
    class Checked(Scripted):
        def check_clock(self, member: Member, case: Case, process: int = 0) -> bool:
            verdict: Agreement = "unclear" if process == 3 else "agrees"
            read = ClockCheck("gproj", "head", case.name, process, verdict, 40, 6, 3e-4, 5e-4, 48, 1e-4, 9e-4, 0.5)
            member.clock_checks.append(read)
            return True

    def said(processes: int) -> str:
        lines: list[str] = []
        launch = replace(HEAD, processes=processes)
        session = Checked([launch], {"gproj@head": constant(1.0)})
        measure(session, CASE, replace(SETTINGS, processes=processes), 0, lines.append)  # type: ignore[arg-type]
        return next(line for line in lines if "warm-up" in line)

    assert said(2).endswith("warm-up gproj@head ok, clock checked in 1.0 s")
    assert said(4).endswith(
        "warm-up gproj@head ok, clock unclear in 1 of 4 processes after 2.0 s: 6 requests of 40 calls,"
        " each 0.3 ms by its clock and 0.5 ms by the ruler's, 0.1 to 0.9 ms beside it"
    )


@pytest.mark.parametrize("shape", ["1x2x3", "0x1x1x1", "abc", "99999x99999x99999x9"])
def test_wrong_shapes(shape: str) -> None:
    with pytest.raises(InputError, match="shape"):
        shape_case(shape, True, 0)


class Throttled:
    """A watch that finds every pair of calls from `first` to `last` throttled."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.calls = first, last, 0

    def begin(self) -> None:
        assert self.calls == 0, "before the first round"

    def throttled(self) -> bool:
        self.calls += 1
        return self.first <= self.calls <= self.last


def test_throttled_rounds_are_void_and_repeated() -> None:
    session = Scripted([HEAD, ANCHOR], {"gproj@head": constant(1.0), "sdpa-math@ruler": constant(2.0)})
    _, comparisons = measure(session, CASE, SETTINGS, 0, lambda line: None, Throttled(2, 4))  # type: ignore[arg-type]
    assert {(c.pairs, c.void_pairs) for c in comparisons} == {(20, 3)}


def test_throttled_pairs_of_a_later_look_are_void() -> None:
    seconds = {"gproj@head": noisy_around(1.1), "gproj@base": constant(1.0)}
    session = Scripted([HEAD, BASE], seconds)
    _, comparisons = measure(session, CASE, SETTINGS, 0, lambda line: None, Throttled(30, 35))  # type: ignore[arg-type]
    assert {(c.pairs, c.void_pairs) for c in comparisons} == {(80, 6)}


def test_a_gpu_that_stays_throttled_gives_no_comparison() -> None:
    session = Scripted([HEAD, ANCHOR], {"gproj@head": constant(1.0), "sdpa-math@ruler": constant(2.0)})
    found = measure(session, CASE, SETTINGS, 0, lambda line: None, Throttled(1, 1000))  # type: ignore[arg-type]
    assert found == ([], [])
    assert session.calls.count("gproj@head") < 200


def test_flops_are_held_against_the_ceiling() -> None:
    session = Scripted([HEAD], {"gproj@head": constant(0.5)})
    ceilings = Ceilings(matmul_tflops=1e-6, copy_gb_s=1.0)
    measurements, _ = measure(  # type: ignore[arg-type]
        session, CASE, SETTINGS, 0, lambda line: None, ceilings=ceilings
    )
    found = {m.pass_: (m.tflops, m.ceiling_share) for m in measurements}
    flops = 2 * 16 * 16 * 16  # causal: half of 4·B·H·Sq·Sk·D
    assert found["forward"] == pytest.approx((flops / 0.5 / 1e12, flops / 0.5 / 1e6))
    assert found["backward"] == pytest.approx((2.5 * flops / 1e12, 2.5 * flops / 1e6))
    assert found["forward_backward"][0] == pytest.approx(3.5 * flops / 1.5 / 1e12)


def test_peak_memory_of_both_passes_is_the_larger() -> None:
    step = StepSeconds(1.0, 2.0, 10, 20)
    assert [step.peak(which) for which in PASSES] == [10, 20, 20]
    assert StepSeconds(1.0, 2.0).peak("forward_backward") is None


def test_the_hosts_time_is_reported_apart() -> None:
    step = StepSeconds(1.0, 2.0, forward_host=0.3, backward_host=0.4)
    assert [step.host(which) for which in PASSES] == pytest.approx([0.3, 0.4, 0.7])
    assert StepSeconds(1.0, 2.0).host("forward") is None

    class Hosted(Scripted):
        def time(
            self, member: Member, case: Case, repeat: int = 1, process: int = 0, audit: Audit | None = None
        ) -> list[StepSeconds] | None:
            steps = super().time(member, case, repeat, process, audit) or []
            hosts = (0.1 * len(self.calls), 0.0)
            return [replace(step, forward_host=hosts[0], backward_host=hosts[1]) for step in steps]

    measurements, _ = run(Hosted([HEAD], {"gproj@head": constant(0.5)}), replace(SETTINGS, pairs=3, max_pairs=3))
    warm = 1 + WARM_UP  # the first call, the others
    assert [m.host_seconds for m in measurements] == pytest.approx([0.1 * (warm + 2), 0.0, 0.1 * (warm + 2)])


def test_ceilings_of_this_machine() -> None:
    with Probe("cpu") as probe:
        found = probe.measure(100, Ending())
    assert isinstance(found, Ceilings)
    assert found.matmul_tflops > 1e-4
    assert found.copy_gb_s > 0.01
    for seconds, ending, reason in (
        (0.01, Ending(), "not measured within"),
        (100, Ending(0.01), "the session's 0.01 s were over"),
    ):
        with Probe("cpu") as probe:
            assert reason in str(probe.measure(seconds, ending))
    full = attention_flops(4, 16, 4096, 4096, 128, causal=False)
    assert full["forward_backward"] == pytest.approx(3.5 * 4 * 4 * 16 * 4096**2 * 128)
