"""The CUDA kernels of a report's page: a folded table per backend, with what they spill in its heading, and before them
what the head's compiler made otherwise than the base's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from gprojci_service.pages.formatting import DASH, clean, memory, number, seconds
from gprojci_service.pages.report_parts import label
from gprojci_service.pages.schemas import Fold, Table
from gprojci_suite.contract.timing import Kernel


def folds(kernels: Iterable[Kernel], case: str) -> tuple[Fold, ...]:
    """What changed of each backend with a base, then one per backend that a profiler saw in this case, in the order of
    the report."""
    found: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.case == case:
            found.setdefault((kernel.backend, kernel.revision), []).append(kernel)
    changed = [
        fold
        for (backend, revision), items in found.items()
        if revision == "head" and (fold := _changes(backend, case, found.get((backend, "base"), []), items))
    ]
    return (*changed, *(_fold(clean(label(*key)), clean(case), items) for key, items in found.items()))


def _changes(backend: str, case: str, before: list[Kernel], after: list[Kernel]) -> Fold | None:
    """The kernels that are not as they were; None where all are, or there is no base."""
    pairs = [pair for pair in _paired(before, after) if pair.differs] if before else []
    if not pairs:
        return None
    more = {
        "registers of a thread": max(pair.growth("registers_per_thread") for pair in pairs),
        "of them spilled": max(pair.growth("spills") for pair in pairs),
    }
    words = "".join(f", up to {number(by)} more {what}" for what, by in more.items() if by > 0)
    name = clean(label(backend, "head"))
    return Fold(
        f"Kernels of {name} that are not as in the base: {number(len(pairs))}{words}",
        Table(
            f"Kernels of one call of {name}, {clean(case)}, that differ from the base's: base → head",
            ("Kernel", "Pass", "Time", "Registers", "Spilled", "Shared memory"),
            tuple(
                (
                    clean(pair.kernel),
                    pair.pass_,
                    "new" if pair.old is None else "gone" if pair.new is None else pair.moved("seconds", seconds),
                    pair.moved("registers_per_thread", number),
                    pair.moved("spills", number),
                    pair.moved("shared_memory_bytes", memory),
                )
                for pair in pairs
            ),
        ),
        warns=any(by > 0 for by in more.values()),
    )


@dataclass(frozen=True)
class _Pair:
    """A kernel in the base and in the head, or in one of them."""

    pass_: str
    kernel: str
    old: Kernel | None
    new: Kernel | None

    @property
    def differs(self) -> bool:
        """Whether the compiler gave it other resources."""
        both = (self.old, self.new)
        return len({one and (one.registers_per_thread, one.spills, one.shared_memory_bytes) for one in both}) > 1

    def growth(self, resource: str) -> int:
        """How much more of a resource the head takes; 0 where that is not known of both."""
        old, new = (getattr(one, resource, None) for one in (self.old, self.new))
        return 0 if old is None or new is None else int(new - old)

    def moved(self, resource: str, spelled: Callable[[Any], str]) -> str:
        """'168 → 255', or one of both where they are the same or there is one alone."""
        words = [spelled(getattr(one, resource)) for one in (self.old, self.new) if one is not None]
        return " → ".join(dict.fromkeys(words))


def _paired(before: list[Kernel], after: list[Kernel]) -> Iterator[_Pair]:
    """Kernels of the same pass and name, the longest first where there are several of a name."""
    for name in dict.fromkeys((item.pass_, item.kernel) for item in (*after, *before)):
        same = (
            sorted((item for item in items if (item.pass_, item.kernel) == name), key=lambda item: -item.seconds)
            for items in (before, after)
        )
        yield from (_Pair(*name, old, new) for old, new in zip_longest(*same))


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
