"""The surface suite: how the error grows with the keys' common offset and with the spread of the logits."""

from collections.abc import Callable
from dataclasses import dataclass

from gprojci_suite import accuracy, inputs
from gprojci_suite.contract.surface import SurfacePoint
from gprojci_suite.inputs import InputSet
from gprojci_suite.member import Case
from gprojci_suite.session import Session

RATIOS = (0, 1, 3, 10, 30, 100, 300)
"""Offset of the keys over their spread."""
LOGIT_STDS = (1, 4, 16, 32)
"""Standard deviation of the logits without the offset; from 16 on most rows have one winner."""
SHAPE = "heads=2&seq=256&head_dim=64"
LAYER = "S"


@dataclass(frozen=True)
class Place:
    """One point of the sweep: its coordinates, its input set and the case made of it."""

    ratio: float
    logit_std: float
    inputs: InputSet
    case: Case


def places(seed: int) -> list[Place]:
    """All points of the sweep, drawn anew for every seed."""
    found = []
    for logit_std in LOGIT_STDS:
        for ratio in RATIOS:
            made = inputs.load(f"synthetic:offset?ratio={ratio}&logit_std={logit_std}&seed={seed + 1}&{SHAPE}")
            case = Case(made.name, made.layers[LAYER], made.causal, made.softmax_scale)
            found.append(Place(float(ratio), float(logit_std), made, case))
    return found


def measure(session: Session, sweep: list[Place], progress: Callable[[str], None]) -> list[SurfacePoint]:
    """Errors of every backend that has not failed, at every point; a backend that fails keeps what it had."""
    members = [member for member in session.members if not member.launch.control]
    points: list[SurfacePoint] = []
    for number, place in enumerate(sweep, 1):
        if session.over(f"surface of {place.case.name}"):
            break
        expected = accuracy.references(place.inputs)
        for member in members:
            computed = session.compute(member, place.case) if member.process is not None else None
            if computed is None:
                continue
            launch = member.launch
            found = accuracy.slices(launch.backend, launch.revision, place.case.name, {LAYER: computed}, expected)
            points += [
                SurfacePoint(
                    launch.backend, launch.revision, place.ratio, place.logit_std, line.tensor, line.median, line.worst
                )
                for line in accuracy.summarise(found, {})
            ]
        progress(f"surface ratio {place.ratio:g} logits {place.logit_std:g} {number}/{len(sweep)}")
    return points
