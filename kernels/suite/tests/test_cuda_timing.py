"""The launch stays out of the time: a stand-in for the GPU, whose queue and clocks are simulated; then a real one."""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gprojci_suite import cuda_graph, cuda_timing, throughput
from gprojci_suite.cuda_timing import CALIBRATED, DISCARDED, SPIN_CAP, CudaTimer, HostTimes, cycle_rate

RATE = 1.5e9


class Gpu:
    """Stands for torch.cuda: what the host enqueues runs in order, not before it was enqueued."""

    def __init__(self) -> None:
        self.now = 0.0  # the host's clock
        self.free = 0.0  # when the GPU has finished what it was given
        self.spins: list[float] = []

    def launch(self, host: float, device: float) -> None:
        self.now += host
        self.free = max(self.free, self.now) + device

    def _sleep(self, cycles: int) -> None:
        self.spins.append(cycles / RATE)
        self.launch(5e-6, cycles / RATE)

    def synchronize(self) -> None:
        self.now = self.free = max(self.now, self.free)

    def clock(self) -> float:
        return self.now

    def reset_peak_memory_stats(self) -> None:
        pass

    def memory_stats_as_nested_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        return {"allocated_bytes": {"all": {"peak": cuda_timing.FLUSH_BYTES + 7}}}

    def Event(self, enable_timing: bool) -> Any:
        gpu = self

        class Event:
            at = 0.0

            def record(self) -> None:
                gpu.now += 1e-6
                self.at = max(gpu.free, gpu.now)

            def elapsed_time(self, end: Any) -> float:
                return float((end.at - self.at) * 1000)

        return Event()


def timer_of(gpu: Gpu) -> CudaTimer:
    return CudaTimer(gpu, gpu.clock, lambda: gpu.launch(5e-6, 8e-5), cycle_rate(gpu))


def call_of(gpu: Gpu, launches: int, host: float, device: float) -> Callable[[], str]:
    def call() -> str:
        for _ in range(launches):
            gpu.launch(host / launches, device / launches)
        return "o"

    return call


@pytest.mark.parametrize(("host", "device"), [(0.0006, 0.00044), (0.004, 0.0001), (0.0001, 0.002)])
def test_the_launch_is_not_in_the_time_once_calibrated(host: float, device: float) -> None:
    gpu = Gpu()
    timer = timer_of(gpu)
    found = [timer.time("forward", call_of(gpu, 6, host, device))[0] for _ in range(9)]
    warm, timed = found[: DISCARDED + CALIBRATED], found[DISCARDED + CALIBRATED :]
    for taken in timed:
        assert taken.seconds == pytest.approx(device, rel=0.01, abs=3e-6)
        assert taken.host == pytest.approx(host, rel=0.01)
        assert taken.cover > 1.5 * host
    if host > device:
        assert all(taken.seconds > 0.75 * host for taken in warm), "what a spin is for"


def test_spins_are_calibrated_for_each_pass_after_the_first_call() -> None:
    gpu = Gpu()
    timer = timer_of(gpu)
    gpu.spins.clear()
    for name, host in (("forward", 0.001), ("backward", 0.002)):
        timer.time(name, call_of(gpu, 1, 0.9, 0.1))  # compiles: 0.9 s of the host
        timer.time(name, call_of(gpu, 1, 0.1, 0.1))  # loads a library
        for _ in range(CALIBRATED + 1):
            timer.time(name, call_of(gpu, 1, host, 1e-4))
    assert gpu.spins == pytest.approx([1.5 * 0.001 + 5e-5, 1.5 * 0.002 + 5e-5], rel=0.01)


def test_spin_arithmetic() -> None:
    first = [3.0, 0.1]
    assert HostTimes([]).spin_seconds() == 0
    assert HostTimes([*first, 0.001, 0.002]).spin_seconds() == 0
    assert HostTimes([*first, 0.001, 0.002, 0.9]).spin_seconds() == pytest.approx(0.00305), "one disturbance is none"
    assert HostTimes([*first, 0.001, 0.002, 0.9, 0.5]).spin_seconds() == pytest.approx(0.00305), "calibrated once"
    assert HostTimes([*first, 0.001, 0.002, 0.9], [0.001]).spin_seconds() == pytest.approx(0.00305)
    assert HostTimes([*first, 0.001, 0.002, 0.9], [0.004]).spin_seconds() == pytest.approx(0.00505)
    assert HostTimes([*first, 0.001, 2.0, 2.0]).spin_seconds() == SPIN_CAP


def test_requests_of_the_clock_check_neither_spin_nor_calibrate() -> None:
    gpu = Gpu()
    timer = timer_of(gpu)
    gpu.spins.clear()
    for _ in range(DISCARDED + CALIBRATED):
        timer.time("forward", call_of(gpu, 1, 0.002, 1e-4))
    taken, _ = timer.time("forward", call_of(gpu, 1, 0.002, 1e-4), spins=False)
    assert (gpu.spins, taken.seconds) == ([], pytest.approx(0.002, rel=0.1)), "its launch is in the time"
    idle, _ = timer.time("forward", lambda: None, counts=False)
    assert gpu.spins == [pytest.approx(0.00305, rel=0.01)], "an empty request waits as long as a real one"
    assert idle.cover > 0.003
    assert len(timer.host["forward"].seen) == DISCARDED + CALIBRATED + 1


def test_what_is_freed_before_a_call_is_covered() -> None:
    gpu = Gpu()

    def free() -> None:
        gpu.now += 0.01

    taken, _ = timer_of(gpu).time("forward", call_of(gpu, 1, 1e-4, 1e-3), free=free)
    assert taken.cover == pytest.approx(0.0101, rel=0.01)
    assert taken.seconds == pytest.approx(0.001, rel=0.1)


def test_a_host_that_became_slower_is_waited_for_longer() -> None:
    gpu = Gpu()
    timer = timer_of(gpu)
    for _ in range(DISCARDED + CALIBRATED):
        timer.time("forward", call_of(gpu, 1, 0.0006, 0.0002))
    gpu.spins.clear()
    first, later = (timer.time("forward", call_of(gpu, 1, 0.0012, 0.0002))[0] for _ in range(2))
    assert gpu.spins == pytest.approx([1.5 * 0.0006 + 5e-5, 1.25 * 0.0012 + 5e-5], rel=0.01)
    assert first.late == pytest.approx(0.0012 - 0.00095, rel=0.02)
    assert first.seconds > 0.0003, "a part of its launch is in the time"
    assert (later.late, later.seconds) == (0.0, pytest.approx(0.0002, rel=0.02))
    for _ in range(cuda_timing.RECENT):
        timer.time("forward", call_of(gpu, 1, 0.0006, 0.0002))
    timer.time("forward", call_of(gpu, 1, 0.0006, 0.0002))
    assert gpu.spins[-1] == gpu.spins[0], "not for ever"


def test_a_backend_that_waits_for_the_gpu_lets_the_spin_grow_to_its_cap() -> None:
    gpu = Gpu()
    timer = timer_of(gpu)

    def call() -> None:
        gpu.launch(1e-4, 1e-3)
        gpu.synchronize()

    for _ in range(20):
        taken, _ = timer.time("forward", call)
    assert max(gpu.spins[cuda_timing.RATE_REPEATS :]) == pytest.approx(SPIN_CAP, rel=0.01)
    assert taken.late == 0.0, "there is nothing more to be had"
    assert taken.seconds == pytest.approx(0.001, rel=0.1)


def test_the_warm_up_of_the_suite_is_what_calibrates() -> None:
    assert 1 + throughput.WARM_UP == DISCARDED + CALIBRATED, "throughput warms up with one call first"


def test_times_come_with_the_result_and_the_peak() -> None:
    gpu = Gpu()
    taken, result = timer_of(gpu).time("forward", call_of(gpu, 1, 1e-4, 1e-4))
    assert (result, taken.peak) == ("o", 7)


class Torch:
    """Stands for torch where a case is captured."""

    def __init__(self, failing: str = "") -> None:
        gpu = self.gpu = Gpu()
        self.failing = failing
        self.captured: list[str] = []
        self.capturing = False
        self.pools: list[Any] = []
        outer = self

        class Graph:
            def pool(self) -> str:
                return "pool"

            def replay(self) -> None:
                gpu.launch(2e-5, 4e-4)

        class Capture:
            def __init__(self, graph: Graph, pool: Any = None) -> None:
                outer.pools.append(pool)

            def __enter__(self) -> None:
                outer.capturing = True

            def __exit__(self, *_: object) -> None:
                outer.capturing = False

        class Stream:
            def wait_stream(self, _: Any) -> None:
                pass

            def __enter__(self) -> None:
                pass

            def __exit__(self, *_: object) -> None:
                pass

        gpu.Stream = Stream  # type: ignore[attr-defined]
        gpu.stream = lambda stream: stream  # type: ignore[attr-defined]
        gpu.current_stream = Stream  # type: ignore[attr-defined]
        gpu.CUDAGraph, gpu.graph = Graph, Capture  # type: ignore[attr-defined]
        self.cuda = gpu

    def run(self, name: str) -> str:
        if self.capturing:
            if name == self.failing:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.captured.append(name)
        return name


def replayed(stand_in: Torch) -> dict[str, Any]:
    timer = timer_of(stand_in.gpu)
    return cuda_graph.replay(stand_in, timer, lambda: stand_in.run("forward"), lambda o: stand_in.run("backward"))


def test_both_passes_are_captured_and_replayed() -> None:
    stand_in = Torch()
    found = replayed(stand_in)
    assert stand_in.captured == ["forward", "backward"]
    assert stand_in.pools == [None, "pool"], "the backward graph reads what the forward graph saved"
    assert found["detail"] is None
    for name in ("forward", "backward"):
        assert found[name] == pytest.approx([4e-4] * cuda_graph.REPLAYS, rel=0.02)


@pytest.mark.parametrize(("failing", "captured"), [("forward", []), ("backward", ["forward"])])
def test_a_pass_that_cannot_be_captured_has_a_reason(failing: str, captured: list[str]) -> None:
    found = replayed(Torch(failing))
    assert [name for name in ("forward", "backward") if found[name]] == captured
    assert found["detail"].startswith(f"{failing} cannot be captured: RuntimeError: operation not permitted")


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def real_timer() -> CudaTimer:
    flush = torch.empty(cuda_timing.FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    return CudaTimer(torch.cuda, time.perf_counter, flush.zero_, cycle_rate(torch.cuda))


@CUDA
def test_a_spin_takes_as_long_as_it_should() -> None:
    rate = cycle_rate(torch.cuda)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(int(0.005 * rate))
    end.record()
    torch.cuda.synchronize()
    assert 0.004 < start.elapsed_time(end) / 1000 < 0.01


@CUDA
def test_a_slow_host_is_not_in_the_time_of_a_gpu() -> None:
    x = torch.randn(64, 64, device="cuda")

    def call() -> None:
        for _ in range(10):
            deadline = time.perf_counter() + 2e-4
            while time.perf_counter() < deadline:
                pass
            torch.mm(x, x)

    timer = real_timer()
    found = [timer.time("forward", call)[0] for _ in range(8)]
    assert min(taken.seconds for taken in found[DISCARDED:][:CALIBRATED]) > 0.0015
    assert max(taken.seconds for taken in found[DISCARDED + CALIBRATED :]) < 0.0005
    assert all(taken.host > 0.002 for taken in found)


@CUDA
def test_attention_is_captured_and_replayed_on_a_gpu() -> None:
    leaves = [torch.randn(1, 4, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    do = torch.randn_like(leaves[0])

    def forward() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)

    found = cuda_graph.replay(torch, real_timer(), forward, lambda o: torch.autograd.grad(o, leaves, do))
    assert found["detail"] is None
    for name in ("forward", "backward"):
        assert len(found[name]) == cuda_graph.REPLAYS
        assert 1e-6 < sorted(found[name])[cuda_graph.REPLAYS // 2] < 1e-3


WAITING = """
import time, torch
from gprojci_suite import cuda_graph, cuda_timing
x = torch.randn(8, device="cuda")
flush = torch.empty(cuda_timing.FLUSH_BYTES, dtype=torch.uint8, device="cuda")
timer = cuda_timing.CudaTimer(torch.cuda, time.perf_counter, flush.zero_, cuda_timing.cycle_rate(torch.cuda))
found = cuda_graph.replay(torch, timer, lambda: x * float(x.sum()), lambda o: o)
print(found["forward"], found["detail"])
"""


@CUDA
def test_what_waits_for_the_gpu_cannot_be_captured() -> None:
    # In a process of its own, which may be of no use afterwards.
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("[] forward cannot be captured")
