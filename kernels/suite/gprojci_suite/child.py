"""One backend in a process of its own: loads it, computes and times cases as the parent commands over a pair of pipes.

Started as `python -P -m gprojci_suite.child READ_FD WRITE_FD PARENT FILE_BYTES`; each message is one line of JSON. The
interpreter may be that of a measured environment, which holds torch and the subject: nothing else is imported here.
"""

import ctypes
import errno
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gprojci_suite.entry import Refused, classify, describe, load_entry, takes_deterministic

CLOCK = time.perf_counter  # Taken before any measured code is imported, which could replace it.
REST_SHARE = 0.5
"""Of its part of the device's memory, were that dealt out evenly, what a process may keep between two calls."""
COMMANDS = (
    *("start", "supported", "load", "compute", "turn", "time", "unchanged", "audited", "rest"),
    *("warm", "graph", "kernels", "load_step", "step", "release", "nothing"),
)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux); exit at once when that has happened already.

    It also adopts the orphans of what it starts, so that the parent finds them below it.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig, pr_set_child_subreaper = 1, 36
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
        prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class Backend:
    """The loaded backend and the case it works on."""

    def __init__(self) -> None:
        self.attention: Callable[..., Any] | None = None
        self.peer: Any = None
        self.device = "cpu"
        self.case: dict[str, Any] = {}
        self.inputs: Any = None
        self.timed: tuple[Any, ...] = ()
        self.idle = False
        self.flush_buffer: Any = None
        self.timer: Any = None
        self.cycles_per_second: float | None = None
        self.step_model: Any = None

    def start(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Import torch and the backend: a peer by `peer`, or a subject by `entry`, checked to come from `site`."""
        begin = CLOCK()
        try:
            import torch
        except ImportError as error:
            raise Refused("build_error", f"the environment has no usable torch: {error}") from error
        self.device = message["device"]
        torch.set_num_threads(message["threads"])
        if self.device == "cuda" and not torch.cuda.is_available():
            raise Refused("runtime_error", "torch sees no CUDA device in this environment")
        if message["peer"] is not None:
            from gprojci_suite import peers

            self.peer = peers.get(message["peer"])
            self.attention = self.peer.attention
        else:
            self.attention = load_entry(message["entry"], message["site"], message["path"])
        if self.device == "cuda":
            torch.zeros(1, device="cuda")  # Makes the context, here where others start beside it.
        deterministic = takes_deterministic(self.attention)
        return {"torch": torch.__version__, "deterministic": deterministic, "seconds": CLOCK() - begin}

    def nothing(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Answer at once: what a request costs."""
        return {}

    def supported(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse with the peer's reason when it cannot compute the case."""
        if self.peer is not None:
            from gprojci_suite import peers

            reason = self.peer.supported(peers.Case(**message["case"]), self.device)
            if reason is not None:
                raise Refused("unsupported", reason)
        return {}

    def load(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Read q, k, v and do from a file; keep mask and scale."""
        from gprojci_suite import exchange
        from gprojci_suite.rotation import Rotation

        self.inputs, self.timed = None, ()
        dtype = getattr(self.peer, "INPUT_DTYPE", None)
        self.inputs = Rotation(exchange.load(Path(message["file"])), self.device, dtype)
        self.case = {"causal": message["causal"], "softmax_scale": message["softmax_scale"]}
        if message.get("deterministic"):
            self.case["deterministic"] = True
        self.timer = None
        return {"dtype": str(self.inputs.leaves["q"].dtype).removeprefix("torch.")}

    def compute(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Write o, dq, dk and dv of the loaded case to `file`, computed in poisoned memory.

        The inputs as they are afterwards go to `inputs`: the parent compares.
        """
        from gprojci_suite import exchange
        from gprojci_suite.poison import poisoned

        self.timed = ()
        self.inputs.restore()
        with poisoned(self.device, self.inputs.extra_bytes) as poison_again:
            o = self._forward()
            poison_again()
            dq, dk, dv = self._backward(o)
        exchange.save(Path(message["file"]), {"o": o, "dq": dq, "dk": dk, "dv": dv})
        exchange.save(Path(message["inputs"]), self.inputs.leaves)
        return {}

    def turn(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Give the next timed call other inputs: those of the file `audit`, or the loaded ones rolled."""
        from gprojci_suite import exchange

        self.timed = ()
        if message["audit"] is not None:
            self.inputs.put(exchange.load(Path(message["audit"])))
        else:
            self.inputs.turn()
        return {}

    def time(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Seconds of `repeat` forward and backward passes, on CUDA each on a cold L2 cache and without its launch.

        With `idle` everything is done but the call of the backend; without `spin` the GPU does not wait for the launch.
        """
        self.idle = message["idle"]
        steps = []
        try:
            for _ in range(message["repeat"]):
                steps.append(self._time_cuda(message["spin"]) if self.device == "cuda" else self._time_cpu())
        finally:
            self.idle = False
        return {name: [step[name] for step in steps] for name in steps[0]}

    def unchanged(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse when the calls timed last wrote into their inputs."""
        name = self.inputs.changed()
        if name is not None:
            raise Refused("wrong_result", f"changed its input {name}")
        return {}

    def audited(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Write inputs and results of the call timed last, of one batch and key/value head, to a file."""
        from gprojci_suite import exchange

        tensors = {**self.inputs.leaves, **dict(zip(("o", "dq", "dk", "dv"), self.timed, strict=True))}
        kv_heads, batch, kv_head = tensors["k"].shape[1], message["batch"], message["kv_head"]
        parts = {}
        for name, tensor in tensors.items():
            group = tensor.shape[1] // kv_heads
            parts[name] = tensor[batch : batch + 1, kv_head * group : (kv_head + 1) * group]
        exchange.save(Path(message["file"]), parts)
        return {}

    def rest(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Give back what the allocator keeps for the next call when that is more than REST_SHARE; says whether it did.

        Many `processes` share one GPU, and each would keep the most that it ever used.
        """
        import torch

        self.timed = ()
        if self.device != "cuda":
            return {"rested": False}
        rested = torch.cuda.memory_reserved() > REST_SHARE * torch.cuda.mem_get_info()[1] / message["processes"]
        if rested:
            torch.cuda.empty_cache()
        return {"rested": rested}

    def warm(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Call the backend once on the loaded case, as one of `processes`; most bytes reserved, and bytes free then."""
        import torch

        if self.device != "cuda":
            self._backward(self._forward())
            return {"peak": 0, "free": 0}
        try:
            torch.cuda.reset_peak_memory_stats()
            self._backward(self._forward())
            torch.cuda.synchronize()
            return {"peak": torch.cuda.max_memory_reserved(), "free": torch.cuda.mem_get_info()[0]}
        finally:
            self.rest(message)

    def graph(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Seconds of the loaded case's passes replayed as CUDA graphs, and why one could not be captured."""
        import torch

        from gprojci_suite import cuda_graph

        if self.device != "cuda":
            raise Refused("unsupported", "CUDA graphs need a CUDA device")
        return cuda_graph.replay(torch, self._cuda_timer(), self._forward, self._backward)

    def kernels(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The CUDA kernels of one forward and one backward pass of the loaded case; none on a CPU."""
        import torch

        from gprojci_suite import kernel_profile

        if self.device != "cuda":
            return {"kernels": []}
        self._backward(self._forward())  # compiles
        torch.cuda.synchronize()
        path = Path(message["file"])
        forward, o = kernel_profile.trace(torch, self._forward, path)
        backward, _ = kernel_profile.trace(torch, lambda: self._backward(o), path)
        spills = kernel_profile.triton_spills()
        traces = {"forward": forward, "backward": backward}
        found = [
            {"pass": name, **kernel} for name, one in traces.items() for kernel in kernel_profile.kernels(one, spills)
        ]
        if not found:
            raise Refused("runtime_error", "the profiler saw no kernel")
        return {"kernels": found}

    def load_step(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Build a model with the backend as its attention, in place of any earlier one."""
        from gprojci_suite.step_model import TrainingStep

        assert self.attention is not None
        self.release(message)
        dtype = getattr(self.peer, "INPUT_DTYPE", None)
        self.step_model = TrainingStep(message["model"], self.attention, dtype, self.device, message["seed"])
        return {}

    def step(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Seconds, losses and peak memory of `repeat` training steps, without attention where `skip_attention`."""
        import torch

        from gprojci_suite.step_model import WrongAttention

        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            steps = [self.step_model(skip_attention=message["skip_attention"]) for _ in range(message["repeat"])]
        except WrongAttention as error:
            raise Refused("wrong_result", str(error)) from error
        peak = torch.cuda.max_memory_allocated() if self.device == "cuda" else None
        losses = [step[1] for step in steps]
        return {"seconds": [step[0] for step in steps], "losses": losses, "peak_memory_bytes": peak}

    def release(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Give back the memory of cases and models."""
        import torch

        self.step_model, self.flush_buffer, self.timer, self.inputs, self.timed = None, None, None, None, ()
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return {}

    def _forward(self) -> Any:
        import torch

        assert self.attention is not None
        if self.idle:
            return None
        q, k, v = (self.inputs.leaves[name] for name in "qkv")
        o = self.attention(q, k, v, **self.case)
        if not isinstance(o, torch.Tensor):
            raise Refused("wrong_result", f"returned {type(o).__name__} where a tensor is expected")
        if o.shape != q.shape or o.dtype != q.dtype:
            wanted = f"{q.dtype} {tuple(q.shape)}"
            raise Refused("wrong_result", f"o is {o.dtype} {tuple(o.shape)} where {wanted} is expected")
        if not o.requires_grad:
            raise Refused("wrong_result", "o has no gradient: the backend is not differentiable")
        return o

    def _backward(self, o: Any) -> tuple[Any, Any, Any]:
        import torch

        if self.idle:
            return None, None, None
        leaves = [self.inputs.leaves[name] for name in "qkv"]
        gradients = torch.autograd.grad(o, leaves, self.inputs.leaves["do"], allow_unused=True)
        for name, gradient in zip(("dq", "dk", "dv"), gradients, strict=True):
            if gradient is None:
                raise Refused("wrong_result", f"{name} is missing: o does not depend on {name[1]}")
        return gradients[0], gradients[1], gradients[2]

    def _time_cpu(self) -> dict[str, Any]:
        self._forget()
        begin = CLOCK()
        o = self._forward()
        middle = CLOCK()
        gradients = self._backward(o)
        seconds = {"forward": middle - begin, "backward": CLOCK() - middle}
        self.timed = (o, *gradients)
        return {
            **seconds,
            **dict.fromkeys(("forward_peak", "backward_peak", "forward_host", "backward_host")),
            "cover": 0.0,
            "late": 0.0,
        }

    def _forget(self) -> None:
        self.timed = ()

    def _time_cuda(self, spin: bool) -> dict[str, Any]:
        # The host times that decide how long the GPU waits are those of calls of the backend.
        how = {"spins": spin, "counts": not self.idle}
        timer = self._cuda_timer()
        forward, o = timer.time("forward", self._forward, free=self._forget, **how)
        backward, gradients = timer.time("backward", lambda: self._backward(o), **how)
        self.timed = (o, *gradients)
        beside = self.inputs.extra_bytes
        seconds = {"forward": forward.seconds, "backward": backward.seconds}
        peaks = {"forward_peak": forward.peak - beside, "backward_peak": backward.peak - beside}
        host = {"forward_host": forward.host, "backward_host": backward.host}
        late = max(forward.late, backward.late)
        return {**seconds, **peaks, **host, "cover": forward.cover + backward.cover, "late": late}

    def _cuda_timer(self) -> Any:
        """The timer of the loaded case, made for the first call that is timed: then no other process reads a case."""
        import torch

        from gprojci_suite import cuda_timing

        if self.flush_buffer is None:
            self.flush_buffer = torch.empty(cuda_timing.FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        if self.cycles_per_second is None:
            self.cycles_per_second = cuda_timing.cycle_rate(torch.cuda)
        if self.timer is None:
            self.timer = cuda_timing.CudaTimer(torch.cuda, CLOCK, self.flush_buffer.zero_, self.cycles_per_second)
        return self.timer


def serve(read: Any, write: Any) -> None:
    """Answer commands until the parent closes the pipe."""
    backend = Backend()
    commands = {name: getattr(backend, name) for name in COMMANDS}
    for line in read:
        message = json.loads(line)
        try:
            answer = {"status": "ok", **commands[message["do"]](message)}
        except Refused as error:
            answer = {"status": error.status, "detail": error.detail}
        except OSError as error:
            detail = "wrote a file larger than the limit\n" if error.errno == errno.EFBIG else ""
            answer = {"status": "runtime_error", "detail": detail + describe(error)}
        # The measured code may raise anything, SystemExit included: it becomes that backend's status.
        except BaseException as error:  # noqa: BLE001
            answer = {"status": classify(error), "detail": describe(error)}
        write.write(json.dumps(answer).encode() + b"\n")
        write.flush()


def main() -> None:
    """Entry point: file descriptors, the parent's process id and the largest file as arguments."""
    read_fd, write_fd, parent, file_bytes = (int(argument) for argument in sys.argv[1:5])
    die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for descriptor in (read_fd, write_fd):
        os.set_inheritable(descriptor, False)
    with os.fdopen(read_fd, "rb") as read, os.fdopen(write_fd, "wb") as write:
        serve(read, write)


if __name__ == "__main__":
    main()
