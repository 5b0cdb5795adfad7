"""Compile every kernel for a GPU that need not be there, and print one JSON line for each: what ptxas made of it.

python compile_kernels.py 90      # compute capability 9.0; also 80 and 86
"""

import contextlib
import json
import re
import sys
from typing import Any
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from gproj.problem import METHODS, Problem
from gproj.triton import launch

CAPABILITIES = {90: (9, 0), 80: (8, 0), 86: (8, 6)}


class AbsentDevice:
    """What Triton asks a driver before it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


class Compiled:
    """In a kernel's place: compiles for the arguments of a launch instead of launching."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.seen: set[int] = set()

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def compile_only(*arguments: Any, **settings: Any) -> None:
            types = [x.dtype if isinstance(x, torch.Tensor) else x for x in arguments]
            binary = self.kernel.warmup(*types, grid=grid, **settings)
            if id(binary) in self.seen:
                return
            self.seen.add(id(binary))
            ptx = binary.asm["ptx"]
            print(
                json.dumps(
                    {
                        "kernel": self.kernel.__name__,
                        "head_dim": settings["HEAD_DIM"],
                        "shared": binary.metadata.shared,
                        "cubin_bytes": len(binary.asm["cubin"]),
                        "tensor_core": "wgmma.mma_async" if "wgmma.mma_async" in ptx else "mma.sync",
                        "contracted": ptx.count("fma.rn.f32"),
                        "atomics": len(re.findall(r"\b(?:atom|red)\.", ptx)),
                    }
                ),
                flush=True,
            )

        return compile_only


def main(capability: int, head_dims: list[int]) -> None:
    driver.set_active(AbsentDevice(capability))
    kernels = {name: Compiled(getattr(launch, name)) for name in dir(launch) if name.endswith("_kernel")}
    with (
        mock.patch.multiple(launch, _on=lambda device: contextlib.nullcontext(), **kernels),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=CAPABILITIES[capability]),
    ):
        for head_dim in head_dims:
            for method in METHODS:
                q = torch.empty(2, 4, 512, head_dim, dtype=torch.bfloat16, device="meta")
                problem = Problem(method, True, 0.125, True, None, None, 512, 512)
                saved = launch.forward(q, q, q, problem)
                launch.backward(q, q, q, q, saved, problem)
        if capability != 90:
            return
        packed = torch.empty(512, 4, 64, dtype=torch.float16, device="meta")
        offsets = torch.empty(3, dtype=torch.int32, device="meta")
        problem = Problem("zerosum", False, 0.125, True, offsets, offsets, 512, 512)
        saved = launch.forward(packed, packed, packed, problem)
        launch.backward(packed, packed, packed, packed, saved, problem)


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(head_dim) for head_dim in sys.argv[2:]])
