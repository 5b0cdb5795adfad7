"""What a comparison draws beside the distribution of errors: change by layer and head, times of single calls."""

from __future__ import annotations

from collections.abc import Iterable

from gprojci_dashboards.charts.call_times import Calls, CallTimesData
from gprojci_dashboards.charts.head_differences import DifferenceData
from gprojci_dashboards.readable import pass_name
from gprojci_service.pages import drawings
from gprojci_service.pages.formatting import tensor
from gprojci_service.pages.schemas import Drawing
from gprojci_suite.contract.report import Report, Slice

_PASSES = ("forward_backward", "backward", "forward")


def differences(sides: tuple[list[Slice], list[Slice]], backend: str, shown: str, chosen: str) -> list[Drawing]:
    """Head over base of the error of these slices at each layer and head; nothing where a side has none."""
    errors = [{(item.layer, item.batch, item.head): item.rel_err for item in side} for side in sides]
    if not all(errors):
        return []
    places = errors[0].keys() | errors[1].keys()
    layers = sorted({layer for layer, _, _ in places}, key=_natural)
    columns = sorted({(batch, head) for _, batch, head in places})
    several = len({batch for batch, _ in columns}) > 1
    base, head = (
        tuple(tuple(found.get((layer, *column)) for column in columns) for layer in layers) for found in errors
    )
    data = DifferenceData(
        str(tensor(chosen)),
        tuple(layers),
        tuple(f"b{batch}.h{number}" if several else f"h{number}" for batch, number in columns),
        base,
        head,
    )
    caption = (
        f"{tensor(chosen)} error of {backend} on {shown}, head over base, of each layer and head: "
        "orange became worse, blue better. Hovering says both errors."
    )
    return [drawings.differences(data, caption)]


def _natural(layer: str) -> tuple[int, str]:
    """L2 before L10."""
    digits = "".join(letter for letter in layer if letter.isdigit())
    return int(digits or 0), layer


def call_times(body: Report, backend: str, names: Iterable[str]) -> list[Drawing]:
    """Times of single calls of base and head of one session, of the first case and its longest pass."""
    measured = [item for item in (body.throughput.measurements if body.throughput else ()) if item.backend == backend]
    for chosen in _PASSES:
        found = [item for item in measured if item.pass_ == chosen and item.revision in ("base", "head")]
        case = found[0].case if found else ""
        by_revision = {item.revision: item.seconds for item in found if item.case == case}
        # Of an old report the medians alone are kept, which are no distribution.
        if len(by_revision) == 2 and all(len(times) > 1 for times in by_revision.values()):
            words = pass_name(chosen)
            sides = zip(names, ("base", "head"), strict=True)
            data = CallTimesData(words, tuple(Calls(name, tuple(by_revision[key])) for name, key in sides))  # type: ignore[index]
            caption = (
                f"Times of single {words} calls of {backend} on {case}: the share of calls within each time. "
                "Diamonds are medians; the verdict stands on the paired ratios, which drifts of the clocks do not move."
            )
            return [drawings.call_times(data, caption)]
    return []
