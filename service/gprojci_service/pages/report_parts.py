"""Turns a suite report into the parts of a job's page: failures, slices, environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gprojci_dashboards.charts.slices_heatmap import HeatmapData
from gprojci_service.pages import drawings, findings
from gprojci_service.pages.formatting import DASH, absolute, duration, fraction, memory, moment, number, tensor
from gprojci_service.pages.report_choices import Shown
from gprojci_service.pages.schemas import (
    AccuracyView,
    Cell,
    FailedBackend,
    SliceRow,
    Table,
)
from gprojci_suite.contract.report import Environment, Report, Slice


def label(backend: str, revision: str) -> str:
    """How a column names a backend: the head's plainly, the base's marked."""
    return f"{backend} (base)" if revision == "base" else backend


def failed(report: Report) -> tuple[FailedBackend, ...]:
    """Backends without a result, the subjects first."""
    found = [entry for entry in report.backends if entry.status != "ok"]
    found.sort(key=lambda entry: (entry.role != "subject", entry.status == "unsupported"))
    return tuple(FailedBackend(label(entry.backend, entry.revision), entry.status, entry.detail) for entry in found)


def accuracy(report: Report, choice: Shown, policy: Mapping[str, Any] | None) -> AccuracyView | None:
    """Errors of one tensor on one input set, slice by backend."""
    if report.accuracy is None or not choice.outline.sliced:
        return None
    shown, chosen = choice.slices
    found = [item for item in report.accuracy.slices if (item.input, item.tensor) == (shown, chosen)]
    order = {(entry.backend, entry.revision): place for place, entry in enumerate(report.backends)}
    role = {(entry.backend, entry.revision): entry.role for entry in report.backends}
    columns = sorted(
        {(item.backend, item.revision) for item in found}, key=lambda key: (role[key] != "subject", order[key])
    )
    by_slice: dict[str, dict[tuple[str, str], Slice]] = {}
    for item in found:
        by_slice.setdefault(item.slice, {})[item.backend, item.revision] = item
    limit = findings.limit_of_metric(policy, f"{chosen}_error")
    rows = tuple(
        SliceRow(
            name,
            any(item.vanishing for item in items.values()),
            tuple(_cell(items.get(column), limit) for column in columns),
        )
        for name, items in by_slice.items()
    )
    names = tuple(label(*column) for column in columns)
    words = str(tensor(chosen))
    heat = HeatmapData(
        words,
        tuple(by_slice),
        names,
        tuple(
            tuple(items[column].rel_err if column in items else None for column in columns)
            for items in by_slice.values()
        ),
        limit,
    )
    against = f"; the colours turn at the gate's limit of {fraction(limit)}" if limit is not None else ""
    return AccuracyView(
        inputs=choice.outline.inputs,
        input=shown,
        tensor=chosen,
        words=f"{words} on {shown}: {number(len(by_slice))} slices, {number(len(columns))} backends",
        caption=f"Relative {words} error of each slice (layer, batch, head)",
        columns=names,
        rows=rows,
        heatmap=drawings.heatmap(heat, f"Relative error of {words} against float64{against}."),
    )


def _cell(item: Slice | None, limit: float | None) -> Cell:
    if item is None:
        return Cell("–")
    more = f"p99.9 {fraction(item.p999)}, cosine {item.cosine:.6f}, scaled {fraction(item.scaled_abs_err)}"
    if item.nonfinite:
        return Cell(f"{number(item.nonfinite)} NaN/Inf", True, more)
    return Cell(fraction(item.rel_err), limit is not None and item.rel_err > limit and not item.vanishing, more)


def environment(report: Report, base_sha: str | None) -> tuple[tuple[str, str], ...]:
    """Facts of the session that its numbers depend on."""
    facts = report.environment
    heads = {item.revision: item.commit for item in report.subjects}
    began = moment(report.created_at)
    rows = [
        ("Device", facts.device_name),
        ("Hardware class", facts.hardware),
        ("Head revision", heads.get("head", "none built")),
        ("Base revision", heads.get("base", base_sha or "none")),
        ("Built in", _builds(report)),
        ("Ruler", f"gprojci-suite {report.ruler.version} at {report.ruler.revision}"),
        *software(facts),
        ("CPUs, threads", f"{facts.cpu_count}, {facts.threads}"),
        ("Memory", memory(facts.memory_bytes)),
        ("Packages", packages(facts)),
        ("Clocks at the start", _clocks(facts.clocks)),
        ("Slowed down by", _reasons(facts.throttle_reasons) or ("nothing" if facts.device == "cuda" else "")),
        ("Network", facts.network),
        ("Started in", _starts(report)),
        ("Seed", str(report.seed)),
        ("Began", f"{absolute(began)}, took {duration(report.duration_seconds)}" if began else ""),
    ]
    return tuple((name, value) for name, value in rows if value)


def software(facts: Environment) -> tuple[tuple[str, str], ...]:
    """Names and values of what stands under the packages; empty where there is none."""
    return (
        ("Platform", facts.platform),
        ("Python, torch", f"{facts.python}, {facts.torch}"),
        ("CUDA, driver", ", ".join(part for part in (facts.cuda, facts.driver) if part)),
    )


def packages(facts: Environment) -> str:
    """Every package with its version."""
    return ", ".join(f"{name} {version}" for name, version in sorted(facts.packages.items()))


def _builds(report: Report) -> str:
    """'head 41 s, base 38 s': one build of a revision serves all of its backends."""
    builds = dict.fromkeys((item.revision, item.build_key, item.build_seconds) for item in report.subjects)
    return ", ".join(f"{revision} {duration(took)}" for revision, _, took in builds if took is not None)


def _starts(report: Report) -> str:
    """'gproj 8.1 s, sdpa-math 6.4 s': import of torch and the backend, beside all others, the slowest first."""
    took = {label(item.backend, item.revision): item.start_seconds for item in report.backends}
    found = sorted(((time, name) for name, time in took.items() if time is not None), key=lambda pair: -pair[0])
    return ", ".join(f"{name} {duration(time)}" for time, name in found)


def gpu_states(report: Report) -> Table | None:
    """Clocks, throttling and other users of the GPU before, during and after the session; None on a CPU."""
    samples = report.environment.samples
    if not samples:
        return None
    return Table(
        "The GPU over the session; during it the slowest clocks at work and every reason that was seen",
        ("Moment", "Clocks", "Slowed down by", "Foreign processes"),
        tuple(
            (
                item.moment,
                _clocks(item.clocks) or DASH,
                _reasons(item.throttle_reasons) or "nothing",
                number(item.foreign_processes),
            )
            for item in samples
        ),
    )


def slowed_by(report: Report) -> str:
    """Every reason for which the GPU was slowed down over the session."""
    reasons = (reason for item in report.environment.samples or () for reason in item.throttle_reasons)
    return _reasons(reasons)


def _reasons(names: Iterable[str]) -> str:
    """NVML's names in words: sw_power_cap → 'power cap (software)'."""
    found = []
    for name in dict.fromkeys(names):
        side, _, what = name.partition("_")
        by = {"sw": "software", "hw": "hardware"}.get(side)
        found.append(f"{what.replace('_', ' ')} ({by})" if by else name.replace("_", " "))
    return ", ".join(found)


def _clocks(clocks: Mapping[str, float] | None) -> str:
    """Of nvidia-smi: `clocks.sm` and `clocks.max.sm` → 'SM 1,755 of 1,980 MHz'."""
    known = {name.removeprefix("clocks."): value for name, value in (clocks or {}).items()}
    most = {name.removeprefix("max."): number(value) for name, value in known.items() if name.startswith("max.")}
    spelled = {"sm": "SM", "mem": "memory"}
    return ", ".join(
        f"{spelled.get(name, name)} {number(value)}{f' of {most[name]}' if name in most else ''} MHz"
        for name, value in known.items()
        if not name.startswith("max.")
    )
