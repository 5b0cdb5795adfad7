"""Subjects that forget, cheat or attack: each ends as a named failure of its own, and the others' results stay."""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gprojci_suite import inputs
from gprojci_suite.contract.spec import LimitsSpec, ThroughputSpec
from gprojci_suite.contract.vocabulary import Device
from gprojci_suite.member import Case, Launch, Member
from gprojci_suite.session import Session
from gprojci_suite.throughput import input_case, measure, shape_case

DEVICE: Device = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = LimitsSpec(
    call_seconds=60.0,
    start_seconds=120.0,
    output_bytes=30_000_000,
    file_bytes=5_000_000,
    processes=64,
    threads=256,
)
GOOD = "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale)"
HEAD = f"""
import os, subprocess, sys, tempfile, threading, time
from pathlib import Path
import torch

HERE = Path(__file__).parent
calls = 0
remembered = {{}}
unwritten = []  # memory for the gradients, taken before they are computed

def good(q, k, v, *, causal, softmax_scale):
    return {GOOD}

class Hooked(torch.autograd.Function):
    '''Attention whose result and gradients go through functions first.'''
    @staticmethod
    def forward(ctx, q, k, v, scale, after, backwards):
        ctx.backwards, ctx.inputs, ctx.scale = backwards, (q, k, v), scale
        with torch.enable_grad():
            ctx.leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            ctx.o = good(*ctx.leaves, causal=True, softmax_scale=scale)
        return after(ctx.o.detach())
    @staticmethod
    def backward(ctx, do):
        q, k, v = ctx.inputs
        unwritten[:] = (
            torch.empty_like(q),
            k.new_empty(k.shape),
            torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device),
        )
        grads = torch.autograd.grad(ctx.o, ctx.leaves, do)
        return *ctx.backwards(do, *ctx.inputs, *grads), None, None, None

def hooked(q, k, v, scale, after=lambda o: o, backwards=lambda do, q, k, v, *grads: grads):
    return Hooked.apply(q, k, v, scale, after, backwards)

def half(to, x):
    '''Writes the first half of the tokens only.'''
    to[:, :, : x.shape[2] // 2] = x[:, :, : x.shape[2] // 2]
    return to

def without_gradient(write):
    with torch.no_grad():
        write()

class Clock:
    '''A clock that goes at another rate from each change on, in place of the ruler's.'''
    def __init__(self):
        self.now, self.rate = time.perf_counter, 1.0
        self.seen = self.told = self.now()
    def __call__(self):
        seen = self.now()
        self.told += (seen - self.seen) * self.rate
        self.seen = seen
        return self.told
    def go(self, rate):
        self()
        self.rate = rate
        sys.modules["__main__"].CLOCK = self
        torch.cuda.Event.elapsed_time = lambda first, second: self.rate * elapsed_time(first, second)

elapsed_time = torch.cuda.Event.elapsed_time
clock = Clock()

def slow(q, k, v, causal, softmax_scale):
    time.sleep(0.05)
    return {GOOD}

def sleepers(count):
    '''Processes that left session and parent; each leaves its id in a file, and would end after two minutes.'''
    for _ in range(count):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                note(os.getpid())
                time.sleep(120)
            os._exit(0)

def note(pid):
    descriptor = os.open(HERE / "pids", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"%d\\n" % pid)
    os.close(descriptor)
"""


@dataclass(frozen=True)
class Adversary:
    """A subject, how it must end, and what its detail must say."""

    body: str
    status: str
    says: str = ""


COMPUTED = {
    "honest": Adversary(f"return {GOOD}", "ok"),
    "forgets_o": Adversary(
        "return hooked(q, k, v, softmax_scale,"
        " lambda o: half(torch.empty(o.shape, dtype=o.dtype, device=o.device), o))",
        "wrong_result",
        "o holds 1024 NaN or Inf elements",
    ),
    "forgets_dq": Adversary(
        "return hooked(q, k, v, softmax_scale, backwards=lambda do, q, k, v, dq, dk, dv:"
        " (half(unwritten[0], dq), dk, dv))",
        "wrong_result",
        "dq holds 1024 NaN or Inf elements",
    ),
    "forgets_dk": Adversary(
        "return hooked(q, k, v, softmax_scale, backwards=lambda do, q, k, v, dq, dk, dv:"
        " (dq, half(unwritten[1], dk), dv))",
        "wrong_result",
        "dk holds 1024 NaN or Inf elements",
    ),
    "forgets_dv": Adversary(
        "return hooked(q, k, v, softmax_scale, backwards=lambda do, q, k, v, dq, dk, dv:"
        " (dq, dk, half(unwritten[2], dv)))",
        "wrong_result",
        "dv holds 1024 NaN or Inf elements",
    ),
    "writes_q": Adversary(
        f"without_gradient(lambda: q.mul_(1.5)); return {GOOD}", "wrong_result", "changed its input q"
    ),
    "writes_k": Adversary(f"k.data[0, 0, 0, 0] += 1; return {GOOD}", "wrong_result", "changed its input k"),
    "writes_v": Adversary(
        "return hooked(q, k, v, softmax_scale, backwards=lambda do, q, k, v, *grads: (v.data.neg_(), grads)[1])",
        "wrong_result",
        "changed its input v",
    ),
    "writes_do": Adversary(
        "return hooked(q, k, v, softmax_scale, backwards=lambda do, q, k, v, *grads: (do.zero_(), grads)[1])",
        "wrong_result",
        "changed its input do",
    ),
    "prints": Adversary(
        f"[print('x' * 999_999) for _ in range(200)]; time.sleep(1); return {GOOD}",
        "runtime_error",
        "printed more than 30 MB",
    ),
    "fills_the_disk": Adversary(
        f"Path(tempfile.gettempdir(), 'large').write_bytes(bytes(6_000_000)); return {GOOD}",
        "runtime_error",
        "wrote a file larger than the limit",
    ),
    "bombs": Adversary(
        f"sleepers(150); time.sleep(5); return {GOOD}", "runtime_error", "started more than 64 processes"
    ),
    "bombs_later": Adversary(
        f"threading.Timer(1, sleepers, [150]).start(); return {GOOD}", "runtime_error", "started more than 64 processes"
    ),
    "leaves_children": Adversary("sleepers(20); os._exit(3)", "runtime_error", "exited with status 3"),
    "leaves_a_stranger": Adversary(
        "note(subprocess.Popen(['sleep', '120'], env={}, start_new_session=True).pid); time.sleep(1); os._exit(3)",
        "runtime_error",
        "exited with status 3",
    ),
    "threads": Adversary(
        "[threading.Thread(target=time.sleep, args=[5], daemon=True).start() for _ in range(400)];"
        f" time.sleep(5); return {GOOD}",
        "runtime_error",
        "started more than 256 threads",
    ),
}
TIMED = {
    "honest": Adversary(f"return {GOOD}", "ok"),
    "honest_and_slow": Adversary("return slow(q, k, v, causal, softmax_scale)", "ok"),
    "remembers_by_address": Adversary(
        "return cached((q.data_ptr(), k.data_ptr(), v.data_ptr(), q.shape), q, k, v, softmax_scale)",
        "wrong_result",
        "a cached result?",
    ),
    "remembers_by_identity": Adversary(
        "return cached((id(q), id(k), id(v)), q, k, v, softmax_scale)", "wrong_result", "a cached result?"
    ),
    "remembers_after_many_calls": Adversary(
        "global calls; calls += 1\n    return cached(max(0, 25 - calls) or 'enough', q, k, v, softmax_scale)",
        "wrong_result",
        "a cached result?",
    ),
    "remembers_gradients": Adversary(
        "return hooked(q, k, v, softmax_scale, backwards=lambda do, q, k, v, *grads: remembered.setdefault(0, grads))",
        "wrong_result",
        "a cached result?",
    ),
    "writes_late": Adversary(
        f"global calls; calls += 1\n    if calls == 12: k.data[0, 0, 0, 0] += 1\n    return {GOOD}",
        "wrong_result",
        "changed its input k",
    ),
    "slow_clock": Adversary(
        "clock.go(0.9); return slow(q, k, v, causal, softmax_scale)", "wrong_result", "its clock says"
    ),
    "fast_clock": Adversary(
        "clock.go(1.1); return slow(q, k, v, causal, softmax_scale)", "wrong_result", "its clock says"
    ),
    "slow_clock_later": Adversary(
        "global calls; calls += 1\n"
        "    clock.go(0.2 if calls > 9 else 1.0); return slow(q, k, v, causal, softmax_scale)",
        "wrong_result",
        "its clock says",
    ),
}
CACHED = """
def cached(key, q, k, v, scale):
    '''The result and gradients of the first call with a key, for every later one.'''
    if key not in remembered:
        leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        remembered[key] = leaves, good(*leaves, causal=True, softmax_scale=scale)
    leaves, o = remembered[key]
    return Cached.apply(q, k, v, o, leaves, key)

class Cached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, o, leaves, key):
        ctx.o, ctx.leaves, ctx.key = o, leaves, key
        return o.detach().clone()
    @staticmethod
    def backward(ctx, do):
        key = (ctx.key, "gradients")
        if key not in remembered:
            remembered[key] = torch.autograd.grad(ctx.o, ctx.leaves, do)
        return *remembered[key], None, None, None
"""


def small() -> Case:
    return input_case(inputs.load("synthetic:random?heads=2&seq=64&head_dim=16"))


def launches(site: Path, adversaries: dict[str, Adversary]) -> list[Launch]:
    functions = [
        f"def {name}(q, k, v, *, causal, softmax_scale):\n    {adversary.body}\n"
        for name, adversary in adversaries.items()
    ]
    (site / "adversaries.py").write_text(HEAD + CACHED + "\n".join(functions))
    return [
        Launch(name, "head", "subject", sys.executable, f"adversaries:{name}", str(site), str(site))
        for name in adversaries
    ]


@dataclass
class Outcome:
    """What became of a session: the members, the results computed before, and after all others had failed."""

    members: dict[str, Member]
    results: dict[str, dict[str, Tensor] | None]
    again: dict[str, Tensor] | None
    site: Path


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """Every adversary of COMPUTED in one session, each asked to compute twice."""
    site = tmp_path_factory.mktemp("computed")
    case = small()
    with Session(launches(site, COMPUTED), DEVICE, LIMITS) as session:
        assert all(member.ok for member in session.start())
        members = {member.launch.backend: member for member in session.members}
        results = {name: session.compute(member, case) for name, member in members.items()}
        deadline = time.monotonic() + 20
        process = members["bombs_later"].process
        while process is not None and process.condemned is None and time.monotonic() < deadline:
            time.sleep(0.05)
        session.statuses()
        yield Outcome(members, results, session.compute(members["honest"], case), site)


@pytest.mark.parametrize("name", sorted(COMPUTED))
def test_what_is_computed(name: str, computed: Outcome) -> None:
    member, adversary = computed.members[name], COMPUTED[name]
    assert member.status == adversary.status, member.detail
    assert adversary.says in (member.detail or "")


def test_the_honest_one_is_not_harmed(computed: Outcome) -> None:
    first, again = computed.results["honest"], computed.again
    assert first is not None
    assert again is not None
    assert all(torch.equal(first[name], again[name]) for name in ("o", "dq", "dk", "dv"))


def test_no_descendant_survives(computed: Outcome) -> None:
    pids = [int(line) for line in (computed.site / "pids").read_text().split()]
    assert len(pids) > 21
    assert not [pid for pid in pids if _running(pid)]


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Member], set[str]]:
    """Every adversary of TIMED through the throughput suite, in one session; and those that have a measurement."""
    site = tmp_path_factory.mktemp("timed")
    settings = ThroughputSpec(("1x2x128x16",), pairs=20, max_pairs=20, margin=0.1)
    with Session(launches(site, TIMED), DEVICE, LIMITS) as session:
        assert all(member.ok for member in session.start())
        measurements, _ = measure(session, shape_case("1x2x128x16", True, 0), settings, 0, lambda line: None)
        return {member.launch.backend: member for member in session.members}, {item.backend for item in measurements}


@pytest.mark.parametrize("name", sorted(TIMED))
def test_what_is_timed(name: str, timed: tuple[dict[str, Member], set[str]]) -> None:
    (members, measured), adversary = timed, TIMED[name]
    member = members[name]
    assert member.status == adversary.status, member.detail
    assert adversary.says in (member.detail or "")
    assert (name in measured) == (adversary.status == "ok")


def test_a_cache_is_found_out_on_an_input_set(tmp_path: Path) -> None:
    name = "remembers_by_address"
    with Session(launches(tmp_path, {name: TIMED[name], "honest": TIMED["honest"]}), DEVICE, LIMITS) as session:
        list(session.start())
        case = input_case(inputs.load("synthetic:offset?heads=4&kv_heads=4&seq=64&head_dim=16"))
        settings = ThroughputSpec((), pairs=2, max_pairs=2)
        measure(session, case, settings, 0, lambda line: None)
        cached, honest = session.members
        assert (cached.status, honest.status) == ("wrong_result", "ok")
        assert "a cached result?" in (cached.detail or "")


def test_temporary_files_are_the_backends_own_and_go_with_it(tmp_path: Path) -> None:
    body = (
        "name = tempfile.mkdtemp(); Path(name, 'kept').write_text('x')\n"
        "    (HERE / 'where').write_text(f'{name} {os.stat(tempfile.gettempdir()).st_mode & 0o777:o}')\n"
        f"    return {GOOD}"
    )
    with Session(launches(tmp_path, {"tidy": Adversary(body, "ok")}), DEVICE, LIMITS) as session:
        list(session.start())
        member = session.members[0]
        assert session.compute(member, small()) is not None, member.detail
        where, mode = (tmp_path / "where").read_text().split()
        assert Path(where).is_relative_to(member.directory)
        assert (Path(where) / "kept").exists()
        assert mode == "700"
    assert not member.directory.exists()


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
