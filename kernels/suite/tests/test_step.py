"""Training steps: pairs of two models at a time, share of attention, loss, and backends that fail at it."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gprojci_suite import cli
from gprojci_suite.answers import TrainingStepTaken
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.spec import LimitsSpec, ThroughputSpec
from gprojci_suite.member import Launch, Member, control_of
from gprojci_suite.session import Session
from gprojci_suite.step import SHARE_PAIRS, measure
from gprojci_suite.step_model import MODELS, NoAttention, TrainingStep, Transformer

HEAD = Launch("gproj", "head", "subject", sys.executable, "m:f")
BASE = Launch("gproj", "base", "subject", sys.executable, "m:f")
ANCHOR = Launch("sdpa-math", "ruler", "anchor", sys.executable)
PEER = Launch("fp32", "ruler", "peer", sys.executable)
SETTINGS = ThroughputSpec((), pairs=4, max_pairs=16, margin=0.5, step_models=("tiny",), step_margin=0.1)


class Scripted:
    """A session whose members train in a scripted time, and which counts who holds a model."""

    def __init__(self, seconds: dict[Launch, Callable[[int], float]]) -> None:
        self.members = [Member(launch, directory=None) for launch in seconds]  # type: ignore[arg-type]
        self.seconds = seconds
        self.calls = 0
        self.trained: dict[Member, int] = {}
        self.most_held = 0

    def check_steps(self, member: Member, model: str) -> bool:
        return True

    def release(self, member: Member) -> None:
        self.trained.pop(member, None)

    def load_step(self, member: Member, model: str, seed: int) -> bool:
        self.trained[member] = 0
        self.most_held = max(self.most_held, len(self.trained))
        return True

    def step(
        self, member: Member, model: str, repeat: int = 1, *, skip_attention: bool = False
    ) -> list[TrainingStepTaken] | None:
        taken = []
        for _ in range(repeat):
            self.calls += 1
            self.trained[member] += 1
            value = self.seconds[member.launch](self.calls) * (0.75 if skip_attention else 1.0)
            if value < 0:
                member.fail("runtime_error", "scripted")
                return None
            taken.append(TrainingStepTaken(value, float(self.trained[member]), 1000 + self.trained[member]))
        return taken


def run(session: Scripted, settings: ThroughputSpec = SETTINGS):  # type: ignore[no-untyped-def]
    return measure(session, "tiny", settings, 0, lambda line: None)  # type: ignore[arg-type]


def test_everything_is_compared_while_two_hold_a_model() -> None:
    control = control_of(HEAD)
    session = Scripted({HEAD: lambda _: 0.12, BASE: lambda _: 0.1, control: lambda _: 0.12, ANCHOR: lambda _: 0.2})
    measurements, comparisons = run(session)
    assert {(c.revision, c.against_backend, c.against_revision, c.control): c.ratio for c in comparisons} == {
        ("head", "gproj", "base", False): pytest.approx(1.2),
        ("head", "gproj", "head", True): pytest.approx(1.0),
        ("head", "sdpa-math", "ruler", False): pytest.approx(0.6),
        ("base", "sdpa-math", "ruler", False): pytest.approx(0.5),
    }
    assert {(c.case, c.pass_, c.pairs) for c in comparisons} == {("tiny", "step", 4)}
    assert session.most_held == 2
    assert not session.trained
    assert [(m.backend, m.revision) for m in measurements] == [
        ("gproj", "head"),
        ("gproj", "base"),
        ("sdpa-math", "ruler"),
    ]
    assert [m.attention_share for m in measurements] == pytest.approx([0.25] * 3)


def test_the_loss_is_that_of_the_same_step_for_every_backend() -> None:
    # Head is undecided against the anchor and trains on.
    session = Scripted(
        {HEAD: lambda call: 1.1 * (1 + 0.2 * (call % 7 - 3)), ANCHOR: lambda _: 1.0, PEER: lambda _: 2.0}
    )
    measurements, comparisons = run(session)
    assert {c.backend: c.pairs for c in comparisons} == {"gproj": 16, "fp32": 4}
    assert len({m.loss for m in measurements}) == 1
    assert all(len(m.seconds) in (4, 16, 20) for m in measurements)


@pytest.mark.parametrize("failing", [1, 3, 12, 20])
def test_a_peer_outlives_its_anchor(failing: int) -> None:
    anchored = {ANCHOR: lambda call: 1.0 if call < failing else -1.0}
    session = Scripted({HEAD: lambda _: 1.0, **anchored, PEER: lambda _: 2.0})
    measurements, comparisons = run(session)
    assert comparisons == []
    assert {m.backend: len(m.seconds) for m in measurements} == {"gproj": 4, "fp32": 4}
    assert {m.loss for m in measurements} == {8.0}
    assert not session.trained


def test_throttled_pairs_are_void() -> None:
    class Watch:
        calls = 0

        def begin(self) -> None:
            assert self.calls == 0, "before the first pair"

        def throttled(self) -> bool:
            self.calls += 1
            return self.calls in (2, 3)

    session = Scripted({HEAD: lambda _: 1.0, ANCHOR: lambda _: 2.0})
    measurements, (compared,) = measure(session, "tiny", SETTINGS, 0, lambda line: None, Watch())  # type: ignore[arg-type]
    assert (compared.pairs, compared.void_pairs) == (4, 2)
    assert [len(m.seconds) for m in measurements] == [4, 4]


def test_a_gpu_that_stays_throttled_times_nothing() -> None:
    class Watch:
        def begin(self) -> None:
            pass

        def throttled(self) -> bool:
            return True

    session = Scripted({HEAD: lambda _: 1.0, ANCHOR: lambda _: 2.0})
    assert measure(session, "tiny", SETTINGS, 0, lambda line: None, Watch()) == ([], [])  # type: ignore[arg-type]


def test_one_backend_alone_is_timed() -> None:
    session = Scripted({PEER: lambda _: 2.0})
    ((measured,), comparisons) = run(session)
    assert (measured.median_seconds, measured.peak_memory_bytes, comparisons) == (2.0, 1008, [])
    assert session.calls == 4 + 4 + 1 + 2 * SHARE_PAIRS


def test_the_large_models_are_of_the_size_they_are_named_after() -> None:
    for name, positions in (("450m", 2048), ("450m-d128", 4096)):
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in Transformer(MODELS[name]).parameters())
        assert count - positions * 1024 == pytest.approx(419e6, rel=0.005)
        assert MODELS[name].batch * MODELS[name].sequence == 16384
    assert (MODELS["450m"].head_dim, MODELS["450m-d128"].head_dim) == (64, 128)


def test_a_model_learns_its_batch() -> None:
    def attention(q, k, v, *, causal, softmax_scale):  # type: ignore[no-untyped-def]
        assert q.dtype == torch.float32
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale)

    step = TrainingStep("tiny", attention, torch.float32, "cpu", seed=1)
    losses = [step()[1] for _ in range(8)]
    assert losses[0] == pytest.approx(math.log(256), rel=0.02)
    assert losses[-1] < losses[0]
    again = TrainingStep("tiny", attention, torch.float32, "cpu", seed=1)
    assert [again()[1] for _ in range(2)] == losses[:2]
    assert step(skip_attention=True)[0] > 0


def test_a_compiled_model_trains_like_the_eager_one_around_an_opaque_attention() -> None:
    from torch._dynamo.utils import counters

    outside: list[bool] = []

    def attention(q, k, v, *, causal, softmax_scale):  # type: ignore[no-untyped-def]
        outside.append(not torch.compiler.is_compiling())
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale)

    losses = {}
    counters.clear()
    for name in ("tiny", "tiny.compiled"):
        step = TrainingStep(name, attention, None, "cpu", seed=1)
        losses[name] = [step()[1] for _ in range(4)]
        assert step(skip_attention=True)[0] > 0
    assert losses["tiny.compiled"] == pytest.approx(losses["tiny"], rel=1e-3)
    assert counters["stats"]["unique_graphs"] == 3, "both layers and all steps share before, after and loss"
    assert not counters["graph_break"]
    assert len(outside) == 2 * 4 * MODELS["tiny"].layers
    assert all(outside)


def test_the_first_step_of_a_model_may_take_as_long_as_a_start(tmp_path: Path) -> None:
    body = "    time.sleep(1.5 if not called else 0); called.append(1); return q * 1.0\n"
    (tmp_path / "mine.py").write_text(
        f"import time\ncalled = []\ndef attention(q, k, v, *, causal, softmax_scale):\n{body}"
    )
    launch = Launch("mine", "head", "subject", sys.executable, "mine:attention", str(tmp_path), str(tmp_path))
    with Session([launch], "cpu", LimitsSpec()) as session:
        (member,) = session.start()
        assert session.load_step(member, "tiny", 0)
        session.limits = LimitsSpec(call_seconds=1.0, start_seconds=30.0)
        assert session.step(member, "tiny") is not None, member.detail


SLEEPY = """
import time
def attention(q, k, v, *, causal, softmax_scale):
    time.sleep(0.02)
    return q * 1.0
"""


def test_a_clock_that_lies_about_steps_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "honest.py").write_text(SLEEPY)
    lie = "from gprojci_suite import step_model\nstep_model.CLOCK = lambda: 0.5 * time.perf_counter()\n"
    (tmp_path / "slow.py").write_text(SLEEPY + lie)
    launches = [
        Launch(name, "head", "subject", sys.executable, f"{name}:attention", str(tmp_path), str(tmp_path))
        for name in ("honest", "slow")
    ]
    with Session(launches, "cpu", LimitsSpec()) as session:
        for member in session.start():
            assert session.load_step(member, "tiny", 0)
            assert all(session.step(member, "tiny") for _ in range(9))
            session.check_steps(member, "tiny")
        honest, slow = session.members
    assert (honest.status, slow.status) == ("ok", "wrong_result"), honest.detail
    assert "step tiny: its clock says" in (slow.detail or "")


def test_without_attention_nothing_is_computed() -> None:
    q, k, v, o, do = (torch.randn(1, 2, 3, 4, requires_grad=index < 3) for index in range(5))
    out = NoAttention.apply(q, k, v, o)
    assert out.data_ptr() == o.data_ptr()
    gradients = torch.autograd.grad(out, (q, k, v), do)
    assert all(torch.equal(gradient, do) for gradient in gradients)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return None", "wrong_result"),
        ("return q[..., :8]", "wrong_result"),
        ("raise NotImplementedError('strided q')", "unsupported"),
        ("return q * 1.0", "ok"),
    ],
)
def test_failures_in_a_model_are_the_backends(tmp_path: Path, body: str, status: str) -> None:
    (tmp_path / "mine.py").write_text(f"def attention(q, k, v, *, causal, softmax_scale):\n    {body}\n")
    launch = Launch("mine", "head", "subject", sys.executable, "mine:attention", str(tmp_path), str(tmp_path))
    with Session([launch], "cpu", LimitsSpec()) as session:
        (member,) = session.start()
        assert session.load_step(member, "tiny", 0)
        steps = session.step(member, "tiny")
    assert (member.status, steps is not None) == (status, status == "ok")


def test_bench_reports_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    arguments = ["bench", "--suites", "step", "--step-models", "tiny", "--backends", "sdpa-math,emulated-fa3"]
    assert cli.main([*arguments, "--pairs", "3", "--max-pairs", "3", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "training step" in printed
    assert "--step-models tiny --anchor sdpa-math" in printed
    report = Report.loads(out.read_text())
    assert report.throughput is None
    assert report.step is not None
    (compared,) = report.step.comparisons
    assert (compared.backend, compared.against_backend, compared.pairs) == ("emulated-fa3", "sdpa-math", 3)
    losses = [measured.loss for measured in report.step.measurements]
    assert losses[0] == pytest.approx(losses[1], abs=0.05)
    assert {measured.peak_memory_bytes for measured in report.step.measurements} == {None}
