"""Every way in which a backend can fail is a status of that backend, and of no other."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gprojci_suite import clock, inputs
from gprojci_suite.answers import Room, StepSeconds, dtype_of, room_of, steps_of
from gprojci_suite.contract.spec import LimitsSpec
from gprojci_suite.member import Case, Launch, Member
from gprojci_suite.process import BackendFailure, BackendProcess
from gprojci_suite.run import layer_cases
from gprojci_suite.session import Session
from gprojci_suite.throughput import draw_audits, input_case

GOOD = "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale)"
BODIES = {
    "good": f"return {GOOD}",
    "raises": "raise ValueError('broken kernel')",
    "gives_up": "raise NotImplementedError('head_dim 16')",
    "sys_exit": "sys.exit(0)",
    "leaves": "os._exit(0)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "segfaults": "os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": "print('waiting for ever', flush=True); time.sleep(600)",
    "out_of_memory": "torch.empty(2**60, dtype=torch.uint8)",
    "nan": f"return {GOOD} * float('nan')",
    "shape": f"return {GOOD}[..., :8]",
    "dtype": f"return ({GOOD}).float()",
    "no_tensor": "return None",
    "detached": f"return ({GOOD}).detach()",
    "ignores_v": "return q * 1.0",
    "prints": f"print('x' * 50_000_000); return {GOOD}",
    "tampers": f"[os.write(fd, b'nonsense\\n') for fd in pipes()]; return {GOOD}",
    "bad_gradient": "return Wrong.apply(q, k, v)",
}
EXPECTED = {
    "good": "ok",
    "raises": "runtime_error",
    "gives_up": "unsupported",
    "sys_exit": "runtime_error",
    "leaves": "runtime_error",
    "killed": "out_of_memory",
    "segfaults": "runtime_error",
    "hangs": "timeout",
    "out_of_memory": "out_of_memory",
    "nan": "wrong_result",
    "shape": "wrong_result",
    "dtype": "wrong_result",
    "no_tensor": "wrong_result",
    "detached": "wrong_result",
    "ignores_v": "wrong_result",
    "prints": "ok",
    "tampers": "runtime_error",
    "bad_gradient": "runtime_error",
    "missing": "build_error",
    "elsewhere": "build_error",
    "not_callable": "build_error",
    "import_exits": "build_error",
    "no_python": "build_error",
}
HEAD = """
import os, signal, stat, sys, time
import torch

number = 3

def pipes():
    return [fd for fd in range(3, 512) if is_pipe(fd) and writable(fd)]

def is_pipe(fd):
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False

def writable(fd):
    import fcntl
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        return q.clone()
    @staticmethod
    def backward(ctx, grad):
        return grad[..., :3], None, None
"""


def case() -> Case:
    return input_case(inputs.load("synthetic:random?heads=1&seq=32&head_dim=16"))


def subject(name: str, entry: str, site: Path, python: str = sys.executable) -> Launch:
    return Launch(name, "head", "subject", python, entry, str(site), str(site))


def started(session: Session) -> list[Member]:
    """The members with all their processes."""
    members = list(session.start())
    session.launch_further()
    session.start_further()
    return members


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Member]]:
    """All failing backends of one session, after each was asked to compute."""
    site = tmp_path_factory.mktemp("site")
    functions = [f"def {name}(q, k, v, *, causal, softmax_scale):\n    {body}\n" for name, body in BODIES.items()]
    (site / "subjects.py").write_text(HEAD + "\n".join(functions))
    (site / "exits.py").write_text("import os; print('goodbye', flush=True); os._exit(7)")
    launches = [subject(name, f"subjects:{name}", site) for name in BODIES]
    launches += [
        subject("missing", "subjects:nothing", site),
        subject("elsewhere", "json:dumps", site),
        subject("not_callable", "subjects:number", site),
        subject("import_exits", "exits:attention", site),
        subject("no_python", "subjects:good", site, python="/nowhere/python"),
    ]
    with Session(launches, "cpu", LimitsSpec(call_seconds=20.0, start_seconds=120.0)) as session:
        assert len(list(session.start())) == len(launches)
        session.limits = LimitsSpec(call_seconds=8.0, start_seconds=120.0)
        session.refuse_unsupported([case()])
        computed = {member.launch.backend: session.compute(member, case()) for member in session.members if member.ok}
        assert {name for name, results in computed.items() if results is not None} == {"good", "prints", "nan"}
        yield {member.launch.backend: member for member in session.members}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_failures_have_names(name: str, outcome: dict[str, Member]) -> None:
    member = outcome[name]
    assert member.status == EXPECTED[name], member.detail
    assert (member.detail is None) == (member.status == "ok")
    assert len(member.detail or "") < 10_000


def test_details_say_what_happened(outcome: dict[str, Member]) -> None:
    wanted = {
        "raises": "broken kernel",
        "leaves": "exited with status 0",
        "segfaults": "SIGSEGV",
        "hangs": "waiting for ever",
        "nan": "o holds 512 NaN or Inf elements",
        "shape": "(1, 1, 32, 8) where torch.bfloat16 (1, 1, 32, 16)",
        "dtype": "torch.float32",
        "no_tensor": "NoneType",
        "detached": "not differentiable",
        "ignores_v": "does not depend on k",
        "missing": "nothing",
        "elsewhere": "not from the build under",
        "not_callable": "not callable",
        "import_exits": "goodbye",
        "no_python": "/nowhere/python",
    }
    for name, text in wanted.items():
        assert text in (outcome[name].detail or ""), name


def test_only_those_that_can_go_on_have_a_process(outcome: dict[str, Member]) -> None:
    alive = {name for name, member in outcome.items() if member.process is not None}
    assert alive == {"good", "prints", "nan"}


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({}, "runtime_error"),
        ({"cover": [0.01]}, None),
        ({"forward_host": [0.001], "backward_host": [0.002]}, None),
        ({"forward_host": ["soon"]}, "runtime_error"),
        ({"backward_host": [-1.0]}, "wrong_result"),
        ({"cover": [float("inf")]}, "wrong_result"),
        ({"cover": [None]}, "runtime_error"),
        ({"cover": []}, "runtime_error"),
        ({"late": [-1.0]}, "wrong_result"),
        ({"late": [None]}, "runtime_error"),
        ({"forward_peak": [2.5]}, "runtime_error"),
    ],
)
def test_what_a_child_says_of_its_times_is_checked(answer: dict[str, list[object]], status: str | None) -> None:
    told: dict[str, list[object]] = {"forward": [0.1], "backward": [0.2], "cover": [0.0], "late": [0.0]}
    told |= {name: [None] for name in ("forward_peak", "backward_peak", "forward_host", "backward_host")}
    told |= answer
    if not answer:
        del told["cover"]
    if status is None:
        (step,) = steps_of(told, 1)
        assert step.forward_backward == pytest.approx(0.3)
        return
    with pytest.raises(BackendFailure) as caught:
        steps_of(told, 1)
    assert caught.value.status == status


def test_no_more_cover_than_there_can_be_explains_a_slow_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def agrees(seconds: float, cover: float, elapsed: float, *, spin: bool = True) -> bool:
        told = {"forward": [seconds] * 4, "backward": [seconds] * 4, "cover": [cover] * 4, "late": [0.0] * 4}
        told |= {name: [None] * 4 for name in ("forward_peak", "backward_peak", "forward_host", "backward_host")}
        with Session([Launch("fp32", "ruler", "peer", sys.executable)], "cuda", LimitsSpec()) as session:
            monkeypatch.setattr(session, "_request", lambda *_: told)
            times = iter((0.0, elapsed))
            monkeypatch.setattr("gprojci_suite.session.time.perf_counter", lambda: next(times))
            try:
                readings = [session._timed(session.members[0], 4, spin=spin)[1]] * 6
            finally:
                monkeypatch.undo()
            empties = [n * 1e-7 for n in range(clock.EMPTIES[0] * len(readings))]
            return clock.Rounds(readings, empties).judge(clock.SLACK["cuda"])[0] is True

    assert agrees(0.0002, 0.002, 4 * 0.00245)
    assert agrees(0.0002, 0.02, 4 * 0.0205)
    assert not agrees(0.0002, 0.02, 4 * 0.0205, spin=False), "no flush is that long"
    assert not agrees(0.0002, 9.0, 4 * 0.9), "no spin is that long"
    assert not agrees(0.0002, 0.0, 4 * 0.9)
    assert not agrees(0.0002, 0.01, 4 * 0.001), "more than went by"


def test_peers_and_honest_clocks() -> None:
    launches = [Launch(name, "ruler", "peer", sys.executable) for name in ("sdpa-math", "fp32", "fa3")]
    with Session(launches, "cpu", LimitsSpec()) as session:
        list(session.start())
        session.refuse_unsupported([case()])
        math, fp32, fa3 = session.members
        assert (math.status, fp32.status, fa3.status) == ("ok", "ok", "unsupported")
        steps = session.time(math, case(), repeat=3)
        assert steps is not None
        assert len(steps) == 3
        assert min(step.forward for step in steps) > 0
        results = session.compute(fp32, case())
        assert results is not None
        assert results["dq"].dtype == torch.float32
        late = next(iter(layer_cases(inputs.load("synthetic:random?seq=16")).values()))
        assert session.compute(math, late) is not None


def test_several_processes_of_one_backend(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"import os, torch\ndef attention(q, k, v, *, causal, softmax_scale):\n"
        f"    open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n    return {GOOD}\n"
    )
    launch = replace(subject("mine", "mine:attention", tmp_path), processes=3)
    with Session([launch], "cpu", LimitsSpec()) as session:
        (member,) = started(session)
        assert member.ok, member.detail
        for process in range(6):
            assert session.time(member, case(), process=process) is not None
        called = (tmp_path / "pids").read_text().split()
        assert called[:3] == called[3:]
        assert len(set(called)) == 3
        session.stop_further()
        assert session.time(member, case(), process=1) is not None
        assert (tmp_path / "pids").read_text().split()[-1] == called[0]
        children = [member.process._process.pid] if member.process else []
        assert children == [int(called[0])]
    assert not any(_running(int(pid)) for pid in called)


def test_a_process_that_gave_its_memory_back_is_warmed_up_before_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch("fp32", "ruler", "peer", sys.executable, processes=2)
    asked: list[tuple[str, str]] = []
    answers = {"forward": [0.1], "backward": [0.1], "cover": [0.0]}
    answers |= {name: [None] for name in ("forward_peak", "backward_peak", "forward_host", "backward_host")}
    with Session([launch], "cuda", LimitsSpec()) as session:
        (member,) = session.members

        def request(worker: Member, message: dict[str, object]) -> dict[str, object]:
            if not message.get("idle"):
                asked.append(("first" if worker is member else "second", str(message["do"])))
            time.sleep(0.001)
            return {"rested": worker is not member} if message["do"] == "rest" else answers

        monkeypatch.setattr(session, "_load", lambda *_: None)
        monkeypatch.setattr(session, "_request", request)
        monkeypatch.setattr("gprojci_suite.session.steps_of", lambda *_: [])
        for process in (0, 1, 0, 1):
            assert session.time(member, case(), process=process) == [], member.detail
    calls = [name for name, what in asked if what == "time"]
    assert calls == ["first", "second", "first", "second", "second"]
    assert [name for name, what in asked if what == "rest"] == ["first", "second"] * 2


@pytest.mark.parametrize(("lates", "again"), [([0.0], 0), ([0.1, 0.0, 0.0], 1), ([0.1, 0.1, 0.1, 0.1], 2)])
def test_a_step_whose_launch_was_not_covered_is_taken_again(
    lates: list[float], again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def request(worker: Member, message: dict[str, Any]) -> dict[str, Any]:
        asked.append(message)
        return {"cover": [0.0]}

    def steps(answer: Any, repeat: int) -> list[StepSeconds]:
        taken = sum(message["do"] == "time" and not message["idle"] for message in asked)
        return [StepSeconds(float(taken), 1.0, late=lates[taken - 1])]

    with Session([Launch("fp32", "ruler", "peer", sys.executable)], "cuda", LimitsSpec()) as session:
        monkeypatch.setattr(session, "_load", lambda *_: None)
        monkeypatch.setattr(session, "_audited", lambda *_: asked.append({"do": "audited"}))
        monkeypatch.setattr(session, "_request", request)
        monkeypatch.setattr("gprojci_suite.session.steps_of", steps)
        (step,) = session.time(session.members[0], case(), audit=draw_audits(case(), "cpu")[0]) or []
    assert [message["do"] for message in asked].count("audited") == 1
    assert [message["audit"] is None for message in asked if message["do"] == "turn"] == [False, *[True] * again]
    assert step.forward == 1 + again, "the last one counts"


def test_a_further_process_that_dies_fails_its_backend(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"import os, torch\nlock = os.open({str(tmp_path)!r} + '/first', os.O_CREAT | os.O_RDWR)\n"
        "import fcntl\ntry:\n    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB); first = True\n"
        "except BlockingIOError:\n    first = False\n"
        f"def attention(q, k, v, *, causal, softmax_scale):\n    first or os._exit(3)\n    return {GOOD}\n"
    )
    launch = replace(subject("mine", "mine:attention", tmp_path), processes=2)
    with Session([launch], "cpu", LimitsSpec()) as session:
        (member,) = started(session)
        answers = [session.time(member, case(), process=process) for process in range(2)]
    assert None in answers
    assert (member.status, member.process) == ("runtime_error", None)
    assert "exited with status 3" in (member.detail or "")


def test_first_calls_are_made_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = [Launch(name, "ruler", "peer", sys.executable, processes=2) for name in ("sdpa-math", "fp32")]
    said: list[str] = []
    send, receive = BackendProcess.send, BackendProcess.receive

    def sends(process: BackendProcess, message: dict[str, Any]) -> None:
        said.append(str(message["do"]))
        send(process, message)

    def receives(process: BackendProcess, seconds: float) -> dict[str, Any]:
        said.append("answered")
        return receive(process, seconds)

    with Session(launches, "cpu", LimitsSpec()) as session:
        members = started(session)
        monkeypatch.setattr(BackendProcess, "send", sends)
        monkeypatch.setattr(BackendProcess, "receive", receives)
        one, both = case(), ["answered"] * 2
        session.threads = 2
        session.warm(members, one, further=False)
        assert said == ["load", "load", *both, "warm", "warm", *both]
        assert session.working.seconds > 0
        said.clear()
        session.threads = 1
        session.warm(members, one, further=True)
        one_by_one = ["warm", "answered"] * 2
        assert said == [*one_by_one, *["load", "answered"] * 2, *one_by_one], "as many at a time as there are cores"
        said.clear()
        session.threads = 4
        seconds = [(member, member.further[0]) for member in members]
        for member, taken in zip(members, (10, 6), strict=True):
            member.peak_bytes = taken
        session._warm_all(seconds, one, room=16)
        session._warm_all(seconds, one, room=15)
        assert said == [*["warm"] * 2, *both, *one_by_one], "as many at a time as have room"
        said.clear()
        assert session.time(members[0], one, process=1)
        assert "load" not in said


@pytest.mark.parametrize("said", [{}, {"peak": -1, "free": 1}, {"peak": "all", "free": 1}, {"peak": 1, "free": None}])
def test_what_a_child_says_of_its_memory_is_not_believed_unseen(said: dict[str, Any]) -> None:
    with pytest.raises(BackendFailure, match="channel"):
        room_of(said)
    with pytest.raises(BackendFailure, match="channel"):
        dtype_of(said)
    assert room_of({"peak": 7, "free": 9}) == Room(7, 9)


def test_a_first_call_that_fails_is_no_verdict_but_a_death_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"import torch\ncalls = []\ndef attention(q, k, v, *, causal, softmax_scale):\n    calls.append(1)\n"
        f"    if len(calls) == 1:\n        raise torch.OutOfMemoryError('no room')\n    return {GOOD}\n"
    )
    launches = [
        subject("crowded", "mine:attention", tmp_path),
        Launch("sdpa-math", "ruler", "peer", sys.executable, processes=2),
        Launch("fp32", "ruler", "peer", sys.executable, processes=2),
    ]
    with Session(launches, "cpu", LimitsSpec()) as session:
        crowded, math, fp32 = started(session)
        further = math.further[0].process
        assert further is not None
        os.kill(further._process.pid, signal.SIGKILL)
        one = case()
        session.warm([crowded, math, fp32], one, further=True)
        assert (math.status, math.process, fp32.status, crowded.status) == ("out_of_memory", None, "ok", "ok")
        assert session.time(fp32, one, process=1)
        assert session.compute(crowded, one) is not None


def test_an_import_that_fails_in_one_process_fails_its_backend(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"import os\nos.open({str(tmp_path)!r} + '/only', os.O_CREAT | os.O_EXCL)\nattention = print\n"
    )
    with Session([replace(subject("mine", "mine:attention", tmp_path), processes=2)], "cpu", LimitsSpec()) as session:
        (member,) = started(session)
    assert member.status == "build_error"
    assert "FileExistsError" in (member.detail or "")


def test_only_calls_of_the_backend_count_as_its_work(tmp_path: Path) -> None:
    body = "time.sleep(0.05); return torch.nn.functional.scaled_dot_product_attention(q, k, v)"
    module = f"import time, torch\ntime.sleep(0.2)\ndef attention(q, k, v, *, causal, softmax_scale):\n    {body}\n"
    (tmp_path / "slow.py").write_text(module)
    case = input_case(inputs.load("synthetic:random?heads=1&seq=32&head_dim=16"))
    with Session([subject("slow", "slow:attention", tmp_path)], "cpu", LimitsSpec()) as session:
        (member,) = session.start()
        assert session.working.seconds == 0
        session._load(member, case)
        session._timed(member, 40, idle=True)
        assert session.working.seconds == 0
        session._timed(member, 2)
        assert session.working.seconds >= 0.1
        before = session.working.seconds
        assert session.compute(member, case) is not None
        assert session.working.seconds >= before + 0.05


def test_no_child_survives_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, time
            from gprojci_suite.contract.spec import LimitsSpec
            from gprojci_suite.member import Launch
            from gprojci_suite.session import Session
            session = Session([Launch("sdpa-math", "ruler", "peer", sys.executable)], "cpu", LimitsSpec())
            list(session.start())
            print(session.members[0].process._process.pid, flush=True)
            time.sleep(60)
            """
        )
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and _running(child):
            time.sleep(0.05)
        assert not _running(child)


def _running(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
