"""What of a report its page shows: chosen from its outline, so that no more than that is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gprojci_service.pages.scatter import PREFERRED_INPUT, pick
from gprojci_service.pages.schemas import FindingView
from gprojci_service.results.excerpts import Cut, Outline

TENSORS = ["dq", "dk", "dv", "o"]


@dataclass(frozen=True)
class Shown:
    """The choices of a page.

    Attributes:
        outline: what they were chosen from.
        slices: input set and tensor of the slices; by default where the gate failed worst.
        marks: input set and tensor of the errors against speed.
        mark_case: timed case of that picture.
        timed_case: timed case of the paired ratios and the times.
    """

    outline: Outline
    slices: tuple[str, str]
    marks: tuple[str, str]
    mark_case: str
    timed_case: str

    def cut(self) -> Cut:
        """The entries of the report that the page reads."""
        cases = {"case": (self.mark_case, self.timed_case)}
        return Cut(
            slices=_of(self.slices),
            summary=_of(self.marks),
            measurements={"case": (self.timed_case,)},
            comparisons=cases | {"pass": ("forward_backward",)},
            kernels={"case": (self.timed_case,)},
        )


def shown(outline: Outline, evidence: tuple[FindingView, ...], choices: Mapping[str, str]) -> Shown:
    """What to show of a report; `choices` (input, tensor, case) come from the address."""
    inputs = list(outline.inputs)
    worst = next(
        (item for item in evidence if item.verdict == "fail" and item.check.partition("_")[0] in TENSORS), None
    )
    preferred = worst.where.split(" · ")[0] if worst else PREFERRED_INPUT
    failed = worst.check.partition("_")[0] if worst else ""
    return Shown(
        outline,
        (
            pick(choices.get("input"), inputs, preferred if preferred in inputs else PREFERRED_INPUT),
            pick(choices.get("tensor"), TENSORS, failed),
        ),
        (pick(choices.get("input"), inputs, PREFERRED_INPUT), pick(choices.get("tensor"), TENSORS)),
        pick(choices.get("case"), list(outline.compared)),
        pick(choices.get("case"), list(outline.measured)),
    )


def _of(chosen: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    return {"input": chosen[:1], "tensor": chosen[1:]}
