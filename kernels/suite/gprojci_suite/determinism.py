"""The determinism suite: the same call several times, compared bit by bit, with and without `deterministic`.

The spread of a tensor is the largest ‖x_r − x_1‖ / ‖x_1‖ over the repeats r and over the slices (layer, batch, head)
that do not vanish: where atomics add up a gradient in another order each time, it is the noise that no accuracy figure
can fall below, and that a ratio to base must be widened by.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gprojci_suite.contract.determinism import Repeatability
from gprojci_suite.contract.vocabulary import TENSORS
from gprojci_suite.member import Case, Member
from gprojci_suite.session import Session

Results = Mapping[str, Mapping[str, Tensor]]
"""o, dq, dk and dv by layer."""

VANISHING = 1e-4
NOT_TAKEN = "the callable takes no keyword `deterministic`"


def measure(
    session: Session, cases: Mapping[str, Mapping[str, Case]], repeats: int, progress: Callable[[str], None]
) -> list[Repeatability]:
    """Every backend on every case, as it is and, where the callable takes it, with `deterministic=True`.

    Args:
        session: the started session.
        cases: by name of the input set or shape, then by layer.
        repeats: computations of each, at least two.
        progress: called with one line per step.
    """
    found: list[Repeatability] = []
    members = [member for member in session.members if not member.launch.control]
    total, done = len(cases) * len(members), 0
    for name, layers in cases.items():
        if session.over(f"determinism of {name}"):
            break
        asked = {layer: _asked(case) for layer, case in layers.items()}
        for member in members:
            done += 1
            if member.process is not None:
                found += _of_backend(session, member, name, layers, repeats, False)
            if member.process is not None:
                found += _of_backend(session, member, name, asked, repeats, True)
            progress(f"determinism {member.launch.label} {name} {done}/{total} {member.status}")
    return found


class Repeats:
    """Compares results with the first of them; holds that one only."""

    def __init__(self) -> None:
        self.first: Results | None = None
        self.count = 0
        self.bitwise = dict.fromkeys(TENSORS, True)
        self.spread = dict.fromkeys(TENSORS, 0.0)

    def add(self, results: Results) -> None:
        """Take one more repeat."""
        self.count += 1
        if self.first is None:
            self.first = results
            return
        for tensor in TENSORS:
            pairs = [(self.first[layer][tensor], results[layer][tensor]) for layer in results]
            if not all(_same_bits(a, b) for a, b in pairs):
                self.bitwise[tensor] = False
                self.spread[tensor] = max(self.spread[tensor], _largest_difference(pairs))


def _of_backend(
    session: Session, member: Member, name: str, layers: Mapping[str, Case], repeats: int, requested: bool
) -> list[Repeatability]:
    def rows(seen: Repeats, detail: str | None) -> list[Repeatability]:
        return [
            Repeatability(
                backend=member.launch.backend,
                revision=member.launch.revision,
                case=name,
                tensor=tensor,
                deterministic_requested=requested,
                repeats=0 if detail else seen.count,
                bitwise=None if detail else seen.bitwise[tensor],
                spread=None if detail else seen.spread[tensor],
                detail=detail,
            )
            for tensor in TENSORS
        ]

    seen = Repeats()
    if requested and not member.takes_deterministic:
        return rows(seen, NOT_TAKEN)
    for _ in range(repeats):
        results: dict[str, Mapping[str, Tensor]] = {}
        for layer, case in layers.items():
            # Refusing to be deterministic is an answer, refusing the case itself a failure.
            computed = session.compute_unless_refused(member, case) if requested else session.compute(member, case)
            if computed is None:
                return []
            if isinstance(computed, str):
                return rows(seen, f"refused: {computed}")
            results[layer] = computed
        seen.add(results)
    return rows(seen, None)


def _asked(case: Case) -> Case:
    return Case(case.name, case.tensors, case.causal, case.softmax_scale, deterministic=True)


def _same_bits(first: Tensor, again: Tensor) -> bool:
    return torch.equal(first.contiguous().view(torch.uint8), again.contiguous().view(torch.uint8))


def _largest_difference(pairs: list[tuple[Tensor, Tensor]]) -> float:
    wide = [(first.double(), again.double()) for first, again in pairs]
    norms = torch.cat([first.flatten(2).norm(dim=-1).flatten() for first, _ in wide])
    moved = torch.cat([(again - first).flatten(2).norm(dim=-1).flatten() for first, again in wide])
    counted = ~(norms < VANISHING * norms.nan_to_num(0.0).max())
    largest = float((moved[counted] / norms[counted]).nan_to_num(math.inf, math.inf).max())
    # Zeros of either sign, or a tensor that is zero throughout: other bits, no distance.
    return 0.0 if float(moved.max()) == 0 else largest
