"""Kernels and graph times reach the report, or their reasons do; no backend fails by them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gprojci_suite import anatomy
from gprojci_suite.contract.spec import LimitsSpec
from gprojci_suite.contract.timing import Kernel, Measurement
from gprojci_suite.contract.vocabulary import PASSES
from gprojci_suite.member import Launch, Member, control_of
from gprojci_suite.session import Session
from gprojci_suite.throughput import shape_case

CASE = shape_case("1x1x16x16", True, 0)
LAUNCH = Launch("gproj", "head", "subject", sys.executable, "m:f")
KERNEL = {"pass": "forward", "kernel": "fwd", "launches": 1, "seconds": 1e-4, "registers_per_thread": 168}
KERNEL |= {"shared_memory_bytes": 1024, "grid": [4, 2, 1], "block": [128, 1, 1], "spills": None}


class Scripted:
    """A session that answers what it is told to, and counts what it is asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def inspect(self, member: Member, case: Any, message: dict[str, Any]) -> Any:
        self.asked.append(message["do"])
        return self.answers[message["do"]]


def timed(*host: float | None) -> list[Measurement]:
    """Forward, backward and both, of 1, 2 and 3 ms, with the host's times."""
    each = zip(PASSES, (0.001, 0.002, 0.003), host, strict=True)
    return [Measurement("gproj", "head", CASE.name, p, (s,), s, host_seconds=h) for p, s, h in each]


def graphs(answer: Any, *host: float | None) -> tuple[Scripted, list[Measurement], list[str]]:
    session, lines = Scripted(graph=answer), list[str]()
    member = Member(LAUNCH, Path("/nowhere"))
    found = anatomy.with_graphs(session, member, CASE, timed(*host), lines.append)  # type: ignore[arg-type]
    return session, found, lines


@pytest.mark.parametrize(
    ("host", "due"),
    [
        ((0.0005, 0.0005, 0.001), False),
        ((0.0012, 0.0005, 0.0017), True),
        ((0.0005, 0.0025, 0.003), True),
        ((None, None, None), False),
    ],
)
def test_graphs_are_for_what_is_launched_more_slowly_than_it_runs(host: tuple[float | None, ...], due: bool) -> None:
    answer = {"forward": [0.0009, 0.0007, 0.0008], "backward": [0.0018], "detail": None}
    session, found, lines = graphs(answer, *host)
    assert session.asked == (["graph"] if due else [])
    wanted = [0.0008, 0.0018, 0.0026] if due else [None] * 3
    assert [item.graph_seconds for item in found] == pytest.approx(wanted)
    assert [item.graph_detail for item in found] == [None] * 3
    assert [replace(item, graph_seconds=None) for item in found] == timed(*host)
    assert lines == []


@pytest.mark.parametrize(
    ("answer", "forward", "reason"),
    [
        ({"forward": [0.001], "backward": [], "detail": "backward cannot be captured: no"}, 0.001, "backward cannot"),
        ({"forward": [], "backward": [], "detail": "forward cannot be captured: no"}, None, "forward cannot"),
        ("died of SIGSEGV\noutput: much", None, "died of SIGSEGV"),
        ({"forward": ["fast"], "backward": [-1.0]}, None, "gave no times"),
        ({"forward": [float("nan")], "backward": []}, None, "gave no times"),
    ],
)
def test_where_there_is_no_graph_the_report_says_why(answer: Any, forward: float | None, reason: str) -> None:
    _, found, lines = graphs(answer, 0.002, 0.001, 0.003)
    assert [item.graph_seconds for item in found] == [forward, None, None]
    details = [item.graph_detail or "" for item in found]
    assert (details[0] == "") == (forward is not None)
    assert all(detail.startswith(reason) and "\n" not in detail for detail in details[1:])
    assert len(lines) == 1
    assert reason in lines[0]


def kernels(answer: Any) -> tuple[list[Kernel], list[str]]:
    lines: list[str] = []
    member = Member(LAUNCH, Path("/nowhere"))
    session: Any = Scripted(kernels=answer)
    return anatomy.kernels_of(session, member, CASE, lines.append), lines


def test_kernels_are_those_of_the_backend_that_was_asked() -> None:
    found, lines = kernels({"kernels": [KERNEL, {**KERNEL, "backend": "somebody else"}]})
    assert {(item.backend, item.revision, item.case, item.grid) for item in found} == {
        ("gproj", "head", CASE.name, (4, 2, 1))
    }
    assert lines == []
    many, _ = kernels({"kernels": [KERNEL] * 1000})
    assert len(many) == anatomy.KERNELS_LIMIT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("CUPTI is in use by another process", "CUPTI is in use"),
        ({}, "no list of kernels"),
        ({"kernels": ["flash"]}, "no list of kernels"),
        ({"kernels": [{**KERNEL, "kernel": "x" * 201}]}, "between 1 and 200"),
        ({"kernels": [{**KERNEL, "launches": 0}]}, "launches"),
        ({"kernels": [{**KERNEL, "pass": "step"}]}, "forward or backward"),
        ({"kernels": [{**KERNEL, "grid": [1] * 9}]}, "three sizes"),
        ({"kernels": [{**KERNEL, "seconds": "NaN"}]}, "seconds"),
        ({"kernels": [{**KERNEL, "spills": -1}]}, "spills"),
    ],
)
def test_what_no_kernel_can_be_is_a_line_of_progress(answer: Any, reason: str) -> None:
    found, lines = kernels(answer)
    assert found == []
    assert len(lines) == 1
    assert reason in lines[0]


def test_other_processes_are_asked_and_their_failures_are_theirs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\ndef attention(q, k, v, *, causal, softmax_scale):\n    os._exit(3)\n")
    (tmp_path / "once.py").write_text(
        f"import os\nos.open({str(tmp_path / 'only')!r}, os.O_CREAT | os.O_EXCL)\n"
        "def attention(q, k, v, *, causal, softmax_scale):\n    os._exit(3)\n"
    )
    launches = [
        Launch("gproj", "head", "subject", sys.executable, "mine:attention", str(tmp_path), str(tmp_path), processes=2),
        Launch("sdpa-math", "ruler", "peer", sys.executable),
        Launch("late", "head", "subject", sys.executable, "once:attention", str(tmp_path), str(tmp_path)),
    ]
    launches.append(control_of(launches[0]))
    measured = timed(0.002, 0.002, 0.004)
    lines: list[str] = []
    with Session(launches, "cpu", LimitsSpec()) as session:
        first = {member.launch.label: member for member in session.start()}["gproj@head"]
        session.launch_further()
        session.start_further()
        assert first.further[0].process is not None
        second = first.further[0].process
        found, listed = anatomy.measure(session, [CASE], measured, lines.append)
        assert first.further[0].process is second, "the second process, not another one"
        assert [member.status for member in session.members] == ["ok"] * 4
    assert listed == []
    assert [item.graph_detail for item in found] == ["CUDA graphs need a CUDA device"] * 3
    assert len(lines) == 2
    assert lines[0].startswith("kernels late@head unknown: cannot import once:attention")
    assert lines[1].startswith(f"graph gproj@head {CASE.name} unknown: CUDA graphs")
