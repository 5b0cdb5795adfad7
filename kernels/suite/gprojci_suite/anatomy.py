"""What a call is made of beside its time: its CUDA kernels, and its passes replayed as CUDA graphs.

Asked when all timing of calls is done, of a process of each backend in which nothing is measured any more: a profiler
slows down the launches of a process for good, and a capture that fails may leave it unusable. Nothing that goes wrong
here is a failure of the backend; it is said in the progress output, and in the report where a graph was due.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gprojci_suite.contract import codec
from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.timing import Kernel, Measurement
from gprojci_suite.member import Case, Member
from gprojci_suite.session import Session

KERNELS_LIMIT = 64
"""Most kernels taken from one backend and case, both passes."""
DETAIL_LIMIT = 300

Progress = Callable[[str], None]


def measure(
    session: Session, cases: Sequence[Case], measurements: Sequence[Measurement], progress: Progress
) -> tuple[list[Measurement], list[Kernel]]:
    """Kernels of every backend and case that was timed, and the measurements with their graph times.

    Args:
        session: that timed them.
        cases: those that were timed.
        measurements: of the throughput suite.
        progress: called with one line per step.
    """
    places: dict[tuple[str, str, str], list[Measurement]] = {}
    for item in measurements:
        places.setdefault((item.backend, item.revision, item.case), []).append(item)
    reason = session.ending.reason
    if reason is not None:
        progress(f"kernels and graphs skipped: {reason}")
        return [
            replace(item, graph_detail=reason) if launch_bound(items) else item
            for items in places.values()
            for item in items
        ], []
    kernels: list[Kernel] = []
    spares = list(session.spares())
    for spare in spares:
        if not spare.ok:
            progress(f"kernels {spare.launch.label} unknown: {_first_line(spare.detail or '')}")
    for case in cases:
        for spare in spares:
            place = (spare.launch.backend, spare.launch.revision, case.name)
            if spare.ok and place in places:
                places[place] = with_graphs(session, spare, case, places[place], progress)
                kernels += kernels_of(session, spare, case, progress)
                session.release(spare)  # All of them share one GPU, and some keep gigabytes.
    return [item for items in places.values() for item in items], kernels


def launch_bound(measurements: Sequence[Measurement]) -> bool:
    """Whether the host takes longer to launch the forward or the backward pass than the GPU to run it."""
    return any(
        item.host_seconds is not None and item.host_seconds > item.median_seconds
        for item in measurements
        if item.pass_ != "forward_backward"
    )


def with_graphs(
    session: Session, member: Member, case: Case, measurements: list[Measurement], progress: Progress
) -> list[Measurement]:
    """The measurements of one backend and case with graph times, or with why there are none, where they are due."""
    if not launch_bound(measurements):
        return measurements
    answer = session.inspect(member, case, {"do": "graph"})
    if isinstance(answer, str):
        medians, detail = {}, answer
    else:
        medians = {name: median for name in ("forward", "backward") if (median := _median(answer.get(name)))}
        detail = str(answer.get("detail") or "gave no times")
    if len(medians) == 2:
        medians["forward_backward"] = sum(medians.values())
    else:
        detail = _first_line(detail)
        progress(f"graph {member.launch.label} {case.name} unknown: {detail}")
    return [
        replace(item, graph_seconds=medians.get(item.pass_), graph_detail=None if item.pass_ in medians else detail)
        for item in measurements
    ]


def kernels_of(session: Session, member: Member, case: Case, progress: Progress) -> list[Kernel]:
    """The kernels of one backend and case; none, and a line of progress, where they cannot be told."""
    path = member.directory / "trace.json"
    answer = session.inspect(member, case, {"do": "kernels", "file": str(path)})
    where = {"backend": member.launch.backend, "revision": member.launch.revision, "case": case.name}
    try:
        if isinstance(answer, str):
            raise ContractError("$", answer)
        listed = answer.get("kernels")
        if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
            raise ContractError("$.kernels", "is no list of kernels")
        return [codec.decode(Kernel, {**item, **where}) for item in listed[:KERNELS_LIMIT]]
    except ContractError as error:
        progress(f"kernels {member.launch.label} {case.name} unknown: {_first_line(str(error))}")
        return []


def _median(values: Any) -> float | None:
    if not isinstance(values, list) or not values:
        return None
    if not all(isinstance(value, float) and 0 < value < float("inf") for value in values):
        return None
    return float(statistics.median(values))


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")[:DETAIL_LIMIT]
