"""A report as text for a terminal."""

from collections.abc import Sequence

from gprojci_suite.contract.report import AccuracySummary, Report
from gprojci_suite.contract.vocabulary import TENSORS


def render(report: Report) -> str:
    """Tables of accuracy and throughput, the failures, and the command that repeats the run."""
    parts = [_environment(report)]
    if report.accuracy is not None:
        parts.append(_accuracy(report.accuracy.summary))
    if report.throughput is not None:
        parts.append(_throughput(report))
    failed = [entry for entry in report.backends if entry.status != "ok"]
    if failed:
        lines = [f"  {e.backend}@{e.revision}: {e.status}: {(e.detail or '').splitlines()[0]}" for e in failed]
        parts.append("\n".join(["failed:", *lines]))
    parts.append(f"repro: {report.repro}")
    return "\n\n".join(parts)


def percent(fraction: float) -> str:
    """A fraction in percent with three significant digits: `0.203%`, `4480%`."""
    value = fraction * 100
    return f"{value:.0f}%" if 1000 <= abs(value) < 1e6 else f"{value:.3g}%"


def _environment(report: Report) -> str:
    env = report.environment
    return (
        f"{env.device_name} ({env.hardware}, {env.threads} threads), torch {env.torch}, "
        f"ruler {report.ruler.version} {report.ruler.revision[:12]}, {report.duration_seconds:.1f} s"
    )


def _accuracy(summary: Sequence[AccuracySummary]) -> str:
    """One row per backend and input: median (worst) relative error of every tensor."""
    rows = [["input", "backend", *(f"{tensor} median (worst)" for tensor in TENSORS), "worst dq", "note"]]
    cells = {(s.input, s.backend, s.revision, s.tensor): s for s in summary}
    for name, backend, revision in dict.fromkeys((s.input, s.backend, s.revision) for s in summary):
        found = [cells[name, backend, revision, tensor] for tensor in TENSORS]
        note = []
        if any(s.vanishing for s in found):
            note.append(f"{sum(s.vanishing for s in found)} vanishing")
        if any(s.nonfinite for s in found):
            note.append(f"{sum(s.nonfinite for s in found)} NaN/Inf")
        values = [f"{percent(s.median)} ({percent(s.worst)})" for s in found]
        label = backend if revision == "ruler" else f"{backend}@{revision}"
        rows.append([name, label, *values, found[TENSORS.index("dq")].worst_slice, ", ".join(note)])
    return "relative error against float64\n" + _aligned(rows)


def _throughput(report: Report) -> str:
    assert report.throughput is not None
    rows = [["case", "pass", "backend", "median", "against", "ratio", "interval", "pairs"]]
    medians = {(m.backend, m.revision, m.case, m.pass_): m.median_seconds for m in report.throughput.measurements}
    compared = set()
    for c in report.throughput.comparisons:
        key = (c.backend, c.revision, c.case, c.pass_)
        compared.add(key)
        against = "itself (A/A control)" if c.control else f"{c.against_backend}@{c.against_revision}"
        rows.append(
            [
                c.case,
                c.pass_,
                f"{c.backend}@{c.revision}",
                _milliseconds(medians.get(key)),
                against,
                f"{c.ratio:.3f}",
                f"{c.low:.3f} … {c.high:.3f}",
                str(c.pairs),
            ]
        )
    for m in report.throughput.measurements:
        if (m.backend, m.revision, m.case, m.pass_) not in compared:
            rows.append([m.case, m.pass_, f"{m.backend}@{m.revision}", _milliseconds(m.median_seconds), "", "", "", ""])
    return "time\n" + _aligned(rows)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.3f} ms"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
