"""Two reports side by side: what became worse, with intervals, and a refusal where they must not be compared.

Times, of forward and backward pass and of a training step: median over median of the two sessions, of the ratios to an
anchor that both timed, else of seconds (see `decision.between_sessions`). Errors: median and worst slice, widened by
the run-to-run spread that either report saw.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from gprojci_suite.contract.report import AccuracySummary, Backend, Report
from gprojci_suite.contract.vocabulary import TENSORS, Pass
from gprojci_suite.decision import RatioInterval, between_sessions, side

Verdict = Literal["worse", "cannot tell", "better", "same"]
SEVERITY: tuple[Verdict, ...] = ("worse", "cannot tell", "better", "same")
CONFIDENCE = 0.95
Key = tuple[str, str]
"""(backend, revision)."""
Place = tuple[str, str, str, str]
"""(backend, revision, `time` or `step`, case or model)."""
TIMES: Mapping[Pass, str] = {"forward_backward": "time", "step": "step"}
"""What is compared of the passes that are."""


class NotComparable(ValueError):
    """The two reports must not be compared; the message names what differs."""


@dataclass(frozen=True)
class Row:
    """One quantity of one backend in both reports.

    Attributes:
        backend: name and revision, `gproj@head`.
        where: input set, or case.
        quantity: `dq median error`, `dq worst error`, `time over sdpa-math`, `seconds`, `step over sdpa-math`,
            `step seconds` or `status`.
        first: value in A, a fraction, a ratio or seconds; None where there is none.
        second: value in B.
        interval: of B over A; None where there is none.
        verdict: for B.
        decides: whether it takes part in the exit status.
        note: why there is no interval, or what a status says.
    """

    backend: str
    where: str
    quantity: str
    first: float | None
    second: float | None
    interval: RatioInterval | None
    verdict: Verdict
    decides: bool
    note: str = ""


def compare(first: Report, second: Report, *, margin: float, error_margin: float) -> list[Row]:
    """Every quantity that both reports have, what matters most first.

    Subjects' heads decide; where no report has one, all backends do.

    Args:
        first: report A.
        second: report B.
        margin: accepted increase of times, a fraction.
        error_margin: accepted increase of errors, a fraction.

    Raises:
        NotComparable: another hardware class, another content of an input set, or nothing in common.
    """
    refuse(first, second)
    before, after = _backends(first), _backends(second)
    shared = [key for key in before if key in after and key[1] != "base"]
    deciding = {key for key in shared if key[1] == "head"} or set(shared)
    rows = [
        *_statuses(before, after, deciding),
        *_errors(first, second, deciding, error_margin),
        *_times(first, second, deciding, margin),
    ]
    if not rows:
        raise NotComparable("the reports have no backend with a result on the same input set or case in common")
    return sorted(rows, key=lambda row: (not row.decides, SEVERITY.index(row.verdict), -_distance(row)))


def refuse(first: Report, second: Report) -> None:
    """Raise NotComparable where the hardware class or the content of an input set differs."""
    classes = [report.environment.hardware for report in (first, second)]
    if classes[0] != classes[1]:
        raise NotComparable(
            f"hardware: A was measured on {classes[0]}, B on {classes[1]}; classes are never compared with each other"
        )
    hashes = {entry.input: entry.content_hash for entry in first.inputs}
    for entry in second.inputs:
        if hashes.get(entry.input, entry.content_hash) != entry.content_hash:
            raise NotComparable(
                f"input set {entry.input}: A measured {hashes[entry.input]}, B measured {entry.content_hash}"
            )


def notes(first: Report, second: Report) -> list[str]:
    """What differs without forbidding the comparison."""
    facts = {
        "machines": (first.environment.device_name, second.environment.device_name),
        "rulers": (first.ruler.revision, second.ruler.revision),
        "torch": (first.environment.torch, second.environment.torch),
    }
    found = [f"{what} differ: {a} and {b}" for what, (a, b) in facts.items() if a != b]
    before, after = _backends(first), _backends(second)
    found += [f"only in A: {_label(key)}" for key in before if key not in after]
    return found + [f"only in B: {_label(key)}" for key in after if key not in before]


def worse(rows: list[Row]) -> bool:
    """Whether anything that decides became worse."""
    return any(row.decides and row.verdict == "worse" for row in rows)


def _backends(report: Report) -> dict[Key, Backend]:
    return {(entry.backend, entry.revision): entry for entry in report.backends}


def _statuses(before: Mapping[Key, Backend], after: Mapping[Key, Backend], deciding: set[Key]) -> Iterator[Row]:
    for key, old in before.items():
        new = after.get(key)
        if new is None or key[1] == "base" or old.status == new.status:
            continue
        # One failure in place of another is no step in either direction.
        verdict: Verdict = "worse" if old.status == "ok" else "better" if new.status == "ok" else "same"
        note = f"{old.status} → {new.status}"
        yield Row(_label(key), "", "status", None, None, None, verdict, key in deciding, note)


def _errors(first: Report, second: Report, deciding: set[Key], margin: float) -> Iterator[Row]:
    before, after = _summaries(first), _summaries(second)
    for place, old in before.items():
        new, key = after.get(place), (old.backend, old.revision)
        if new is None or old.revision == "base":
            continue
        if new.nonfinite and not old.nonfinite:
            note = f"{new.nonfinite} NaN or Inf"
            yield Row(_label(key), old.input, f"{old.tensor} NaN", None, None, None, "worse", key in deciding, note)
            continue
        spread = max(old.spread or 0.0, new.spread or 0.0)
        for quantity, a, b in (("median", old.median, new.median), ("worst", old.worst, new.worst)):
            interval = _widened(a, b, spread)
            verdict = _verdict(interval, margin) if interval else "cannot tell"
            note = "" if interval else "no finite error to compare"
            name = f"{old.tensor} {quantity} error"
            yield Row(_label(key), old.input, name, a, b, interval, verdict, key in deciding, note)


def _summaries(report: Report) -> dict[tuple[str, ...], AccuracySummary]:
    lines = report.accuracy.summary if report.accuracy else ()
    order = {tensor: index for index, tensor in enumerate(TENSORS)}
    lines = tuple(sorted(lines, key=lambda line: order[line.tensor]))
    return {(line.backend, line.revision, line.input, line.tensor): line for line in lines}


def _widened(first: float, second: float, spread: float) -> RatioInterval | None:
    if not (math.isfinite(first) and math.isfinite(second) and math.isfinite(spread)):
        return None
    if first == second:
        ratio = 1.0
    elif first == 0:
        ratio = math.inf
    else:
        ratio = second / first
    return RatioInterval(ratio, ratio / (1 + spread), ratio * (1 + spread))


def _times(first: Report, second: Report, deciding: set[Key], margin: float) -> Iterator[Row]:
    ratios = [_ratios(report) for report in (first, second)]
    seconds = [_seconds(report) for report in (first, second)]
    for place in seconds[0]:
        if place not in seconds[1] or place[1] == "base":
            continue
        key, what, case = (place[0], place[1]), place[2], place[3]
        anchors = [found.get(place, {}) for found in ratios]
        anchor = next((name for name in anchors[0] if name in anchors[1]), None)
        # Seconds are widened by what lies between two sessions, other processes included.
        samples = [found[anchor] for found in anchors] if anchor else [(found[place], 1) for found in seconds]
        (before, processes_before), (after, processes_after) = samples
        if min(len(before), len(after)) < 2:
            continue
        processes = (processes_before, processes_after)
        anchored = anchor is not None
        interval = between_sessions(before, after, CONFIDENCE, second.seed, anchored=anchored, processes=processes)
        middle = [statistics.median(sample) for sample in (before, after)]
        quantity = f"{what} over {anchor}" if anchor else f"{what} seconds".removeprefix("time ")
        note = "" if anchor else "two sessions without a common anchor: interval widened by the drift between them"
        verdict = _verdict(interval, margin)
        yield Row(_label(key), case, quantity, middle[0], middle[1], interval, verdict, key in deciding, note)


def _ratios(report: Report) -> dict[Place, dict[str, tuple[tuple[float, ...], int]]]:
    """Ratios of forward and backward time and of steps, and the processes they came from, by place, then by anchor."""
    found: dict[Place, dict[str, tuple[tuple[float, ...], int]]] = {}
    for section in (report.throughput, report.step):
        for item in section.comparisons if section else ():
            what = TIMES.get(item.pass_)
            if what is not None and item.against_revision == "ruler" and not item.control:
                place = (item.backend, item.revision, what, item.case)
                found.setdefault(place, {})[item.against_backend] = (item.ratios, item.processes)
    return found


def _seconds(report: Report) -> dict[Place, tuple[float, ...]]:
    found: dict[Place, tuple[float, ...]] = {}
    for timed in report.throughput.measurements if report.throughput else ():
        if timed.pass_ in TIMES:
            found[timed.backend, timed.revision, TIMES[timed.pass_], timed.case] = timed.seconds
    for trained in report.step.measurements if report.step else ():
        found[trained.backend, trained.revision, TIMES["step"], trained.model] = trained.seconds
    return found


def _verdict(interval: RatioInterval, margin: float) -> Verdict:
    where = side(interval.low, interval.high, margin)
    if where == "above":
        return "worse"
    if interval.high < 1 / (1 + margin):
        return "better"
    return "same" if where == "below" else "cannot tell"


def _distance(row: Row) -> float:
    """How far B is from A, whatever the direction; what has no ratio matters most."""
    if row.interval is None or not 0 < row.interval.ratio < math.inf:
        return math.inf
    return abs(math.log(row.interval.ratio))


def _label(key: Key) -> str:
    return key[0] if key[1] == "ruler" else f"{key[0]}@{key[1]}"
