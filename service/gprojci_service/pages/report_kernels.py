"""The CUDA kernels of a report's page: a folded table per backend, with what they spill in its heading."""

from __future__ import annotations

from collections.abc import Iterable

from gprojci_service.pages.formatting import DASH, clean, memory, number, seconds
from gprojci_service.pages.report_parts import label
from gprojci_service.pages.schemas import Fold, Table
from gprojci_suite.contract.timing import Kernel


def folds(kernels: Iterable[Kernel], case: str) -> tuple[Fold, ...]:
    """One per backend that a profiler saw in this case, in the order of the report."""
    found: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.case == case:
            found.setdefault((kernel.backend, kernel.revision), []).append(kernel)
    return tuple(_fold(clean(label(*key)), clean(case), items) for key, items in found.items())


def _fold(name: str, case: str, kernels: list[Kernel]) -> Fold:
    has_spills = any(item.spills is not None for item in kernels)
    ranked = sorted(kernels, key=lambda item: (item.pass_ != "forward", -item.seconds))
    return Fold(
        f"Kernels of {name}: {_words(kernels)}",
        Table(
            f"Kernels of one call of {name}, {case}, by a profiler in a process of its own; registers of a thread, "
            "shared memory of a block",
            (
                "Kernel",
                "Pass",
                "Launches",
                "Time",
                "Registers",
                *(["Spilled"] if has_spills else []),
                "Shared memory",
                "Grid",
                "Block",
            ),
            tuple(
                (
                    clean(item.kernel),
                    item.pass_,
                    number(item.launches),
                    seconds(item.seconds),
                    number(item.registers_per_thread),
                    *([number(item.spills)] if has_spills else []),
                    memory(item.shared_memory_bytes),
                    _sizes(item.grid),
                    _sizes(item.block),
                )
                for item in ranked
            ),
        ),
        warns=_worst_spill(kernels) > 0,
    )


def _worst_spill(kernels: list[Kernel]) -> int:
    return max((item.spills or 0 for item in kernels), default=0)


def _words(kernels: list[Kernel]) -> str:
    """'4 in 1.94 ms, at most 255 registers of a thread, 36 of them spilled'."""
    parts = [f"{number(len(kernels))} in {seconds(sum(item.seconds for item in kernels))}"]
    registers = [item.registers_per_thread for item in kernels if item.registers_per_thread is not None]
    if registers:
        parts.append(f"at most {number(max(registers))} registers of a thread")
    if any(item.spills is not None for item in kernels):
        worst = _worst_spill(kernels)
        parts.append(f"at worst {number(worst)} spilled to memory" if worst else "none spilled to memory")
    return ", ".join(parts)


def _sizes(sizes: tuple[int, ...]) -> str:
    return " × ".join(number(size) for size in sizes) or DASH
