"""The closed sets of words that specs, reports and manifests use."""

from collections.abc import Mapping
from typing import Literal, get_args

Device = Literal["cpu", "cuda"]
Suite = Literal["accuracy", "surface", "symmetry", "determinism", "throughput", "step"]
Revision = Literal["head", "base", "ruler"]
SubjectRevision = Literal["head", "base"]
Role = Literal["subject", "anchor", "peer"]
Status = Literal["ok", "unsupported", "build_error", "wrong_result", "runtime_error", "timeout", "out_of_memory"]
Tensor = Literal["o", "dq", "dk", "dv"]
Pass = Literal["forward", "backward", "forward_backward", "step"]
StepModel = Literal["450m", "450m-d128", "tiny", "450m.compiled", "450m-d128.compiled", "tiny.compiled"]
Response = Literal["dq_key_shift", "dq_value_shift", "dk_value_shift", "dk_row_sum"]
Moment = Literal["before", "during", "after"]
Agreement = Literal["agrees", "unclear", "disagrees"]
Network = Literal["isolated", "shared", "unknown"]
TrainingStatus = Literal["completed", "diverged", "ended_early", "unsupported", "failed"]
Positions = Literal["learned", "rotary"]
Projection = Literal["q", "k", "v"]

TENSORS: tuple[Tensor, ...] = get_args(Tensor)
PASSES: tuple[Pass, ...] = ("forward", "backward", "forward_backward")
"""Passes of attention alone."""
STEP_MODELS: tuple[StepModel, ...] = get_args(StepModel)
RESPONSES: tuple[Response, ...] = get_args(Response)
SUITES: tuple[Suite, ...] = get_args(Suite)
DEVICES: tuple[Device, ...] = get_args(Device)
POSITIONS: tuple[Positions, ...] = get_args(Positions)
PROJECTIONS: tuple[Projection, ...] = get_args(Projection)

PROCESSES: Mapping[Device, int] = {"cpu": 1, "cuda": 5}
"""Processes of each compared backend where nothing else is asked for, by kind of device."""
MAX_PROCESSES = 16
"""Most of them: each holds a CUDA context and its tensors beside all the others."""
