"""The CUDA kernels of one call, from a trace of `torch.profiler`: launches, time, registers, shared memory, spills.

The trace is Kineto's (Chrome's trace format): an event of category `kernel` carries its duration in microseconds and,
in `args`, `registers per thread`, `shared memory` (static and dynamic bytes of a block), `grid` and `block`
(https://github.com/pytorch/kineto, libkineto/src/CuptiActivity.cpp). Spills are known to Triton alone, which keeps them
with every kernel that it has compiled.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gprojci_suite.contract.timing import KERNEL_NAME_LIMIT

KERNELS_KEPT = 32
"""Kernels of one pass, those that take longest."""


def trace(torch: Any, call: Callable[[], Any], path: Path) -> tuple[dict[str, Any], Any]:
    """Run `call` under the profiler; returns the trace, written to `path` and removed again, and what it returned."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        result = call()
        torch.cuda.synchronize()
    try:
        profiler.export_chrome_trace(str(path))
        found: dict[str, Any] = json.loads(path.read_text(errors="replace"))
    finally:
        path.unlink(missing_ok=True)
    return found, result


def kernels(found: Mapping[str, Any], spills: Mapping[tuple[str, int | None], int | None]) -> list[dict[str, Any]]:
    """The kernels of a trace, the longest first, launches of the same size and name in one entry.

    Args:
        found: a trace as `torch.profiler` exports it.
        spills: from `triton_spills`.

    Returns:
        Fields of `contract.timing.Kernel` from `kernel` on; what the trace does not tell is None, or an empty list.
    """
    entries: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in found.get("traceEvents", ()):
        if event.get("ph") != "X" or event.get("cat") != "kernel":
            continue
        arguments = event.get("args", {})
        name, registers = str(event["name"]), _count(arguments.get("registers per thread"))
        shared = _count(arguments.get("shared memory"))
        grid, block = (_sizes(arguments.get(size)) for size in ("grid", "block"))
        entry = entries.setdefault(
            (name, registers, shared, tuple(grid), tuple(block)),
            {
                "kernel": name[:KERNEL_NAME_LIMIT],
                "launches": 0,
                "seconds": 0.0,
                "registers_per_thread": registers,
                "shared_memory_bytes": shared,
                "grid": grid,
                "block": block,
                "spills": spills.get((name, registers)),
            },
        )
        entry["launches"] += 1
        entry["seconds"] += float(event.get("dur", 0.0)) / 1e6
    return sorted(entries.values(), key=lambda entry: -entry["seconds"])[:KERNELS_KEPT]


def triton_spills(objects: Iterable[Any] | None = None) -> dict[tuple[str, int | None], int | None]:
    """Spilled registers by name and registers of every loaded Triton kernel; None where two variants disagree.

    Args:
        objects: where to look; everything alive when None.
    """
    compiler = sys.modules.get("triton.compiler.compiler")
    kind = getattr(compiler, "CompiledKernel", None)
    if kind is None:
        return {}
    found: dict[tuple[str, int | None], int | None] = {}
    # `type` and not isinstance: other people's proxies in the heap may run code when asked for their class.
    for item in (item for item in (gc.get_objects() if objects is None else objects) if type(item) is kind):
        name, spilled = getattr(item, "name", None), getattr(item, "n_spills", None)
        if isinstance(name, str) and isinstance(spilled, int):
            key = (name, _count(getattr(item, "n_regs", None)))
            found[key] = spilled if found.get(key, spilled) == spilled else None
    return found


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sizes(value: Any) -> list[int]:
    return [int(size) for size in value] if isinstance(value, list) else []
