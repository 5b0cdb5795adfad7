"""Checks the stock backends of this machine against what they printed on the bundled captures on an H200.

The expected values, `captures/measured-h200.tsv`, are relative errors against float64 in percent, measured with torch
2.11 and CUDA 13.0. `head` is the head's index in the capture as taken; the bundled files keep some of them, and their
metadata (`kept_heads`) says which.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from gprojci_suite import inputs
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.spec import LimitsSpec, RunSpec
from gprojci_suite.contract.vocabulary import TENSORS, Device
from gprojci_suite.ending import Ending
from gprojci_suite.peers import UnknownPeer
from gprojci_suite.run import run

RELATIVE = 0.05
"""Run-to-run spread of kernels with atomics, as a fraction of the value."""
RELATIVE_OF_THE_WORST_HEAD = 0.15
"""The same for head 0 of layer L1 of late-keybias, whose gradient is what is left of a large cancellation."""
WORST_HEAD = ("late-keybias", "L1", 0)
PERCENTAGE_POINTS = 0.05
ANYWHERE = ("sdpa-math",)
"""Backends that print the same on every kind of device; float32's own error depends on the order of its sums."""

ELSEWHERE = "measured on a GPU; a CPU runs another kernel or sums in another order"

State = Literal["ok", "off", "failed", "not checked"]


@dataclass(frozen=True)
class Row:
    """What one backend printed on one head: percent by tensor.

    Attributes:
        capture: name of the input set.
        layer: layer of the head.
        head: index in the capture as taken.
        backend: name of the peer.
        percent: relative error of o, dq, dk and dv in percent.
    """

    capture: str
    layer: str
    head: int
    backend: str
    percent: Mapping[str, float]

    def within(self, tensor: str, measured: float) -> bool:
        """Whether a measured percentage is the expected one within run-to-run spread; never for NaN."""
        worst = (self.capture, self.layer, self.head) == WORST_HEAD
        relative = RELATIVE_OF_THE_WORST_HEAD if worst else RELATIVE
        expected = self.percent[tensor]
        return abs(measured - expected) <= max(relative * expected, PERCENTAGE_POINTS)


@dataclass(frozen=True)
class Check:
    """A row, what was measured for it (percent by tensor, empty where nothing was), and the outcome with its reason."""

    row: Row
    measured: Mapping[str, float]
    state: State
    reason: str


def expected() -> list[Row]:
    """All rows of the bundled table."""
    text = (resources.files("gprojci_suite.captures") / "measured-h200.tsv").read_text()
    return [
        Row(
            line["capture"],
            line["layer"],
            int(line["head"]),
            line["backend"],
            {tensor: float(line[tensor]) for tensor in TENSORS},
        )
        for line in csv.DictReader(text.splitlines(), delimiter="\t")
    ]


def measure(
    rows: Sequence[Row],
    device: Device,
    call_seconds: float,
    progress: Callable[[str], None],
    ending: Ending | None = None,
) -> tuple[Report, list[Check]]:
    """Run the backends of `rows` that can be compared on `device`, until `ending`, and check every row."""
    names = dict.fromkeys(row.backend for row in rows if comparable(row.backend, device))
    spec = RunSpec(
        schema_version=1,
        device=device,
        seed=0,
        suites=("accuracy",),
        subjects=(),
        peers=tuple(names),
        anchor=None,
        inputs=tuple(dict.fromkeys(row.capture for row in rows)),
        limits=LimitsSpec(call_seconds, max(call_seconds, 120.0)),
    )
    report = run(spec, progress, ending)
    return report, compare(report, rows)


def choose(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows of some backends, all of them for no name; raises UnknownPeer for a backend without rows."""
    known = list(dict.fromkeys(row.backend for row in rows))
    for name in names:
        if name not in known:
            raise UnknownPeer(f"{name}: nothing is expected of it; known: {', '.join(known)}")
    return [row for row in rows if not names or row.backend in names]


def comparable(backend: str, device: Device) -> bool:
    """Whether values of a GPU can be expected of the backend on `device`."""
    return device == "cuda" or backend in ANYWHERE


def compare(report: Report, rows: Sequence[Row]) -> list[Check]:
    """The outcome of every row."""
    slices = report.accuracy.slices if report.accuracy is not None else ()
    found = {(s.input, s.slice, s.backend, s.tensor): 100 * s.rel_err for s in slices}
    statuses = {entry.backend: entry for entry in report.backends}
    heads = {name: _kept_heads(name) for name in dict.fromkeys(row.capture for row in rows)}
    checks = []
    for row in rows:
        entry = statuses.get(row.backend)
        if entry is None:
            checks.append(Check(row, {}, "not checked", ELSEWHERE))
            continue
        if entry.status != "ok":
            state: State = "not checked" if entry.status == "unsupported" else "failed"
            checks.append(Check(row, {}, state, f"{entry.status}: {(entry.detail or '').splitlines()[0]}"))
            continue
        index = heads[row.capture][row.layer].index(row.head)
        measured: dict[str, float] = {
            t: found[row.capture, f"{row.layer}.b0.h{index}", row.backend, t] for t in TENSORS
        }
        off = [tensor for tensor in TENSORS if not row.within(tensor, measured[tensor])]
        checks.append(Check(row, measured, "off" if off else "ok", ", ".join(off)))
    return checks


def passed(checks: Sequence[Check]) -> bool:
    """Whether something was checked and everything that was checked reproduces."""
    states = {check.state for check in checks}
    return "ok" in states and not states & {"off", "failed"}


def _kept_heads(name: str) -> dict[str, list[int]]:
    """Heads of the capture as taken, in their order within the bundled file, by layer."""
    made = inputs.load(name)
    kept = {}
    for part in filter(None, made.provenance.get("kept_heads", "").split(";")):
        layer, _, heads = part.partition(":")
        kept[layer.strip()] = [int(head) for head in heads.split()]
    return {layer: kept.get(layer, list(range(t.q.shape[1]))) for layer, t in made.layers.items()}
