"""The checks of a report's page that need no captured input: error surface, symmetry, determinism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gprojci_dashboards.charts.error_surface import Facet, SurfaceData
from gprojci_dashboards.charts.slices_heatmap import HeatmapData
from gprojci_service.pages import drawings, findings
from gprojci_service.pages.formatting import DASH, clean, first_line, fraction, number, tensor
from gprojci_service.pages.report_choices import TENSORS
from gprojci_service.pages.report_parts import label
from gprojci_service.pages.scatter import pick
from gprojci_service.pages.schemas import Cell, Choice, Section
from gprojci_suite.contract.determinism import Repeatability
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.symmetry import SymmetrySummary
from gprojci_suite.contract.vocabulary import RESPONSES, Response

RESPONSE_WORDS: dict[Response, str] = {
    "dq_key_shift": "dQ, keys shifted",
    "dq_value_shift": "dQ, values shifted",
    "dk_value_shift": "dK, values shifted",
    "dk_row_sum": "dK summed over keys",
}


def surface(report: Report, policy: Mapping[str, Any] | None, choices: Mapping[str, str]) -> Section | None:
    """Median error of one tensor over the keys' offset and the spread of the logits, a heat map per backend."""
    if report.surface is None or not report.surface.points:
        return None
    points = report.surface.points
    offered = [name for name in TENSORS if any(point.tensor == name for point in points)]
    chosen = pick(choices.get("surface"), offered)
    found = {
        (point.backend, point.revision, point.ratio, point.logit_std): point.median
        for point in points
        if point.tensor == chosen
    }
    offsets = tuple(sorted({key[2] for key in found}))
    stds = tuple(sorted({key[3] for key in found}))
    backends = [(entry.backend, entry.revision) for entry in report.backends]
    facets = tuple(
        Facet(
            label(*backend),
            tuple(tuple(found.get((*backend, offset, std)) for std in stds) for offset in offsets),
        )
        for backend in backends
        if any(key[:2] == backend for key in found)
    )
    limit = findings.limit_of_metric(policy, f"{chosen}_error")
    words = str(tensor(chosen))
    against = f"; the colours turn at the gate's limit of {fraction(limit)}" if limit is not None else ""
    caption = (
        f"Median relative {words} error on synthetic inputs whose keys share an offset{against}. Down: the offset's "
        "norm over the keys' spread. Across: the standard deviation of the logits without it."
    )
    return Section(
        "surface",
        "Error surface",
        f"{words}: {number(len(offsets))} offsets, {number(len(stds))} spreads, {number(len(facets))} backends",
        (Choice("surface", "Tensor", tuple(offered), chosen, {name: str(tensor(name)) for name in offered}),),
        drawings.surface(SurfaceData(words, offsets, stds, facets, limit), caption),
    )


def symmetry(report: Report, policy: Mapping[str, Any] | None, choices: Mapping[str, str]) -> Section | None:
    """Responses to shifts that must not move a gradient: zero in exact arithmetic."""
    if report.symmetry is None or not report.symmetry.summary:
        return None
    cases = list(dict.fromkeys(item.case for item in report.symmetry.summary))
    case = pick(choices.get("symmetry"), cases)
    found = {
        (item.backend, item.revision, item.response): item for item in report.symmetry.summary if item.case == case
    }
    backends = list(dict.fromkeys(key[:2] for key in found))
    responses = [response for response in RESPONSES if any(key[2] == response for key in found)]
    limit = (policy or {}).get("dq_symmetry_ceiling")
    data = HeatmapData(
        "Symmetry",
        tuple(label(*backend) for backend in backends),
        tuple(RESPONSE_WORDS[response] for response in responses),
        tuple(
            tuple(found[*backend, response].median if (*backend, response) in found else None for response in responses)
            for backend in backends
        ),
        limit,
        "backend",
        "response",
    )
    against = f" The gate allows dQ a response of {fraction(limit)} to shifted keys." if limit is not None else ""
    caption = (
        "How far a gradient moves, relative to its norm, where it must not move at all: median over the slices. Needs "
        f"no reference.{against}"
    )
    rows = tuple(
        (
            Cell(label(*backend)),
            *(_response(found.get((*backend, response)), response, limit) for response in responses),
        )
        for backend in backends
    )
    return Section(
        "symmetry",
        "Symmetry",
        f"{case}, {number(len(backends))} backends",
        (Choice("symmetry", "Case", tuple(cases), case, {}),) if len(cases) > 1 else (),
        drawings.heatmap(data, caption, "symmetry-map", "response"),
        "Median response over the slices that do not vanish, and the worst of them",
        ("Backend", *(RESPONSE_WORDS[response] for response in responses)),
        rows,
    )


def _response(item: SymmetrySummary | None, response: Response, limit: float | None) -> Cell:
    if item is None:
        return Cell(DASH)
    over = response == "dq_key_shift" and limit is not None and item.median > limit
    if item.vanishing == item.slices:
        return Cell("vanishes", more="the tensor's norm is below 1e-4 of the largest one in every slice")
    sub = f"worst {fraction(item.worst)} at {item.worst_slice}"
    return Cell(fraction(item.median), over, f"{number(item.slices)} slices, {number(item.vanishing)} vanish", sub)


def determinism(report: Report, choices: Mapping[str, str]) -> Section | None:
    """Whether the same call gives the same bits again, as it is and where determinism was asked for."""
    if not report.determinism:
        return None
    cases = list(dict.fromkeys(item.case for item in report.determinism))
    case = pick(choices.get("determinism"), cases)
    found: dict[tuple[str, str, bool, str], Repeatability] = {
        (item.backend, item.revision, item.deterministic_requested, item.tensor): item
        for item in report.determinism
        if item.case == case
    }
    tensors = [name for name in TENSORS if any(key[3] == name for key in found)]
    rows = []
    for backend, revision, requested in dict.fromkeys(key[:3] for key in found):
        items = [found.get((backend, revision, requested, name)) for name in tensors]
        why = next((item.detail for item in items if item is not None and item.detail), None)
        called = "deterministic=True" if requested else "as it is"
        rows.append((Cell(label(backend, revision)), Cell(called, sub=first_line(why, 60)), *map(_repeats, items)))
    repeats = max((item.repeats for item in found.values()), default=0)
    return Section(
        "determinism",
        "Determinism",
        f"{case}, computed {number(repeats)} times",
        (Choice("determinism", "Case", tuple(cases), case, {}),) if len(cases) > 1 else (),
        caption="Whether every repeat had the bits of the first; else the largest relative difference to it",
        columns=("Backend", "Called", *(str(tensor(name)) for name in tensors)),
        rows=tuple(rows),
    )


def _repeats(item: Repeatability | None) -> Cell:
    if item is None:
        return Cell(DASH)
    if item.repeats == 0:
        return Cell("not possible", more=clean(item.detail))
    return Cell("same bits") if item.bitwise else Cell("differs", sub=f"by up to {fraction(item.spread)}")
