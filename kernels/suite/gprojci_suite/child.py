"""One backend in a process of its own: loads it, computes and times cases as the parent commands over a pair of pipes.

Started as `python -P -m gprojci_suite.child READ_FD WRITE_FD PARENT`; each message is one line of JSON. The interpreter
may be that of a measured environment, which holds torch and the subject: nothing else is imported here.
"""

import ctypes
import gc
import importlib
import inspect
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CLOCK = time.perf_counter  # Taken before any measured code is imported, which could replace it.
DETAIL_LIMIT = 4000
REST_BYTES = 2**31
COMMANDS = ("start", "supported", "load", "compute", "time", "rest", "graph", "kernels", "load_step", "step", "release")


class Refused(Exception):
    """A backend cannot do what was asked; carries a status of the report and the reason."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux); exit at once when that has happened already."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class Backend:
    """The loaded backend and the case it works on."""

    def __init__(self) -> None:
        self.attention: Callable[..., Any] | None = None
        self.peer: Any = None
        self.device = "cpu"
        self.case: dict[str, Any] = {}
        self.tensors: dict[str, Any] = {}
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
        deterministic = takes_deterministic(self.attention)
        return {"torch": torch.__version__, "deterministic": deterministic, "seconds": CLOCK() - begin}

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

        dtype = getattr(self.peer, "INPUT_DTYPE", None)
        tensors = exchange.load(Path(message["file"]))
        self.tensors = {
            name: tensor.to(self.device, dtype).requires_grad_(name != "do") for name, tensor in tensors.items()
        }
        self.case = {"causal": message["causal"], "softmax_scale": message["softmax_scale"]}
        if message.get("deterministic"):
            self.case["deterministic"] = True
        self.timer = self._cuda_timer() if self.device == "cuda" else None
        return {"dtype": str(self.tensors["q"].dtype).removeprefix("torch.")}

    def compute(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Write o, dq, dk and dv of the loaded case to a file."""
        from gprojci_suite import exchange

        o = self._forward()
        dq, dk, dv = self._backward(o)
        exchange.save(Path(message["file"]), {"o": o, "dq": dq, "dk": dk, "dv": dv})
        return {}

    def time(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Seconds of `repeat` forward and backward passes, on CUDA each on a cold L2 cache and without its launch."""
        timed = self._time_cuda if self.device == "cuda" else self._time_cpu
        steps = [timed() for _ in range(message["repeat"])]
        return {name: [step[name] for step in steps] for name in steps[0]}

    def rest(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Give back what the allocator keeps for the next call when that is more than REST_BYTES; says whether it did.

        Many processes share one GPU, and each would keep the most that it ever used.
        """
        import torch

        rested = self.device == "cuda" and torch.cuda.memory_reserved() > REST_BYTES
        if rested:
            torch.cuda.empty_cache()
        return {"rested": rested}

    def graph(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Seconds of the loaded case's passes replayed as CUDA graphs, and why one could not be captured."""
        import torch

        from gprojci_suite import cuda_graph

        if self.timer is None:
            raise Refused("unsupported", "CUDA graphs need a CUDA device")
        return cuda_graph.replay(torch, self.timer, self._forward, self._backward)

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

        self.step_model, self.flush_buffer, self.timer, self.tensors = None, None, None, {}
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return {}

    def _forward(self) -> Any:
        import torch

        assert self.attention is not None
        o = self.attention(self.tensors["q"], self.tensors["k"], self.tensors["v"], **self.case)
        if not isinstance(o, torch.Tensor):
            raise Refused("wrong_result", f"returned {type(o).__name__} where a tensor is expected")
        if o.shape != self.tensors["q"].shape or o.dtype != self.tensors["q"].dtype:
            wanted = f"{self.tensors['q'].dtype} {tuple(self.tensors['q'].shape)}"
            raise Refused("wrong_result", f"o is {o.dtype} {tuple(o.shape)} where {wanted} is expected")
        if not o.requires_grad:
            raise Refused("wrong_result", "o has no gradient: the backend is not differentiable")
        return o

    def _backward(self, o: Any) -> tuple[Any, Any, Any]:
        import torch

        leaves = (self.tensors["q"], self.tensors["k"], self.tensors["v"])
        gradients = torch.autograd.grad(o, leaves, self.tensors["do"], allow_unused=True)
        for name, gradient in zip(("dq", "dk", "dv"), gradients, strict=True):
            if gradient is None:
                raise Refused("wrong_result", f"{name} is missing: o does not depend on {name[1]}")
        return gradients[0], gradients[1], gradients[2]

    def _time_cpu(self) -> dict[str, Any]:
        begin = CLOCK()
        o = self._forward()
        middle = CLOCK()
        self._backward(o)
        seconds = {"forward": middle - begin, "backward": CLOCK() - middle}
        return {
            **seconds,
            **dict.fromkeys(("forward_peak", "backward_peak", "forward_host", "backward_host")),
            "cover": 0.0,
        }

    def _time_cuda(self) -> dict[str, Any]:
        forward, o = self.timer.time("forward", self._forward)
        backward, _ = self.timer.time("backward", lambda: self._backward(o))
        seconds = {"forward": forward.seconds, "backward": backward.seconds}
        peaks = {"forward_peak": forward.peak, "backward_peak": backward.peak}
        host = {"forward_host": forward.host, "backward_host": backward.host}
        return {**seconds, **peaks, **host, "cover": forward.cover + backward.cover}

    def _cuda_timer(self) -> Any:
        import torch

        from gprojci_suite import cuda_timing

        if self.flush_buffer is None:
            self.flush_buffer = torch.empty(cuda_timing.FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        if self.cycles_per_second is None:
            self.cycles_per_second = cuda_timing.cycle_rate(torch.cuda)
        return cuda_timing.CudaTimer(torch.cuda, CLOCK, self.flush_buffer.zero_, self.cycles_per_second)


def load_entry(entry: str, site: str, path: str | None) -> Callable[..., Any]:
    """Import `module:callable`; the module's file must lie under `site` unless that is empty.

    Raises:
        Refused: build_error when it cannot be imported, is not callable, or came from elsewhere.
    """
    if path is not None:
        sys.path.insert(0, path)
    module_name, _, attribute = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
        target: Any = module
        for name in attribute.split("."):
            target = getattr(target, name)
    # Importing runs arbitrary code of the commit: whatever it raises is the build's failure, not ours.
    except BaseException as error:
        raise Refused("build_error", f"cannot import {entry}: {describe(error)}") from error
    if not callable(target):
        raise Refused("build_error", f"{entry} is not callable")
    if site:
        file = getattr(module, "__file__", None)
        if file is None or not Path(file).resolve().is_relative_to(Path(site).resolve()):
            raise Refused("build_error", f"{module_name} came from {file}, not from the build under {site}")
    return target


def takes_deterministic(attention: Any) -> bool:
    """Whether a callable names the keyword `deterministic`; one that swallows any keyword does not tell."""
    try:
        parameters = inspect.signature(attention).parameters
    except (TypeError, ValueError):
        return False
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return "deterministic" in parameters and parameters["deterministic"].kind in named


def describe(error: BaseException) -> str:
    """The exception and the end of its traceback, capped."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"{type(error).__name__}: {error}"[:500] + "\n" + trace[-DETAIL_LIMIT:]


def classify(error: BaseException) -> str:
    """The report's status for an exception of the measured code."""
    import torch

    allocation = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    if allocation or isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return "out_of_memory"
    return "unsupported" if isinstance(error, NotImplementedError) else "runtime_error"


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
        # The measured code may raise anything, SystemExit included: it becomes that backend's status.
        except BaseException as error:  # noqa: BLE001
            answer = {"status": classify(error), "detail": describe(error)}
        write.write(json.dumps(answer).encode() + b"\n")
        write.flush()


def main() -> None:
    """Entry point: file descriptors and the parent's process id as arguments."""
    read_fd, write_fd, parent = (int(argument) for argument in sys.argv[1:4])
    die_with_parent(parent)
    for descriptor in (read_fd, write_fd):
        os.set_inheritable(descriptor, False)
    with os.fdopen(read_fd, "rb") as read, os.fdopen(write_fd, "wb") as write:
        serve(read, write)


if __name__ == "__main__":
    main()
