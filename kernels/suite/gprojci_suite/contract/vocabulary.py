"""The closed sets of words that specs, reports and manifests use."""

from typing import Literal, get_args

Device = Literal["cpu", "cuda"]
Suite = Literal["accuracy", "throughput"]
Revision = Literal["head", "base", "ruler"]
SubjectRevision = Literal["head", "base"]
Role = Literal["subject", "anchor", "peer"]
Status = Literal["ok", "unsupported", "build_error", "wrong_result", "runtime_error", "timeout", "out_of_memory"]
Tensor = Literal["o", "dq", "dk", "dv"]
Pass = Literal["forward", "backward", "forward_backward"]
Network = Literal["isolated", "shared", "unknown"]

TENSORS: tuple[Tensor, ...] = get_args(Tensor)
PASSES: tuple[Pass, ...] = get_args(Pass)
SUITES: tuple[Suite, ...] = get_args(Suite)
DEVICES: tuple[Device, ...] = get_args(Device)
