"""A report as text for a terminal."""

from collections import Counter
from collections.abc import Collection, Sequence

from gprojci_suite.compare import SEVERITY, Row
from gprojci_suite.contract.determinism import Repeatability
from gprojci_suite.contract.report import AccuracySummary, Report
from gprojci_suite.contract.surface import SurfacePoint
from gprojci_suite.contract.symmetry import SymmetrySummary
from gprojci_suite.contract.timing import Comparison, Kernel, Measurement, Step
from gprojci_suite.contract.vocabulary import RESPONSES, TENSORS
from gprojci_suite.readable import percent, plain
from gprojci_suite.reproduce import Check

SHOWN_KERNELS = 3
SHOWN_NAME = 60


def render(report: Report) -> str:
    """Tables of accuracy and throughput, the failures, and the command that repeats the run."""
    parts = [_environment(report)]
    if report.accuracy is not None:
        parts.append(_accuracy(report.accuracy.summary))
    if report.surface is not None:
        parts.append(_surface(report.surface.points))
    if report.symmetry is not None:
        parts.append(_symmetry(report.symmetry.summary))
    if report.determinism is not None:
        parts.append(_determinism(report.determinism))
    if report.throughput is not None:
        parts.append(_throughput(report))
    if report.step is not None:
        parts.append(_step(report.step))
    failed = [entry for entry in report.backends if entry.status != "ok"]
    if failed:
        lines = [f"  {e.backend}@{e.revision}: {e.status}: {(e.detail or '').splitlines()[0]}" for e in failed]
        parts.append("\n".join(["failed:", *lines]))
    parts.append(f"repro: {report.repro}")
    return "\n\n".join(parts)


def _environment(report: Report) -> str:
    env, working = report.environment, report.working_seconds
    shared = f", {working / report.duration_seconds:.0%} of it measuring" if working and report.duration_seconds else ""
    return (
        f"{env.device_name} ({env.hardware}, {env.threads} threads), torch {env.torch}, "
        f"ruler {report.ruler.version} {report.ruler.revision[:12]}, {report.duration_seconds:.1f} s{shared}"
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
    return "relative error against float64\n" + aligned(rows)


def _surface(points: Sequence[SurfacePoint]) -> str:
    """One row per backend and deviation of the logits: median relative error of dq over the offset."""
    ratios = sorted({p.ratio for p in points})
    cells = {(p.backend, p.revision, p.logit_std, p.ratio): p.median for p in points if p.tensor == "dq"}
    rows = [["backend", "logits", *(f"offset {ratio:g}" for ratio in ratios)]]
    for backend, revision, logit_std in dict.fromkeys((p.backend, p.revision, p.logit_std) for p in points):
        label = backend if revision == "ruler" else f"{backend}@{revision}"
        found = [cells.get((backend, revision, logit_std, ratio)) for ratio in ratios]
        rows.append([label, f"{logit_std:g}", *("" if value is None else percent(value) for value in found)])
    return "surface: median relative error of dq over the keys' offset ÷ spread\n" + aligned(rows)


def reproduction(checks: Sequence[Check]) -> str:
    """What was expected of each head and backend beside what was measured; what was not checked by backend."""
    rows = [["capture", "layer", "head", "backend", *(f"{t} measured / expected %" for t in TENSORS), "outcome"]]
    for check in checks:
        if check.measured:
            row = check.row
            pairs = [f"{plain(check.measured[tensor])} / {plain(row.percent[tensor])}" for tensor in TENSORS]
            outcome = f"{check.state}: {check.reason}" if check.reason else check.state
            rows.append([row.capture, row.layer, str(row.head), row.backend, *pairs, outcome])
    unmeasured = Counter((check.row.backend, check.state, check.reason) for check in checks if not check.measured)
    lines = [f"{backend}: {count} rows {state}: {reason}" for (backend, state, reason), count in unmeasured.items()]
    counts = Counter(check.state for check in checks)
    total = f"{len(checks)} rows: {', '.join(f'{count} {state}' for state, count in counts.items())}"
    return "\n".join([aligned(rows), "", *lines, total])


def _symmetry(summary: Sequence[SymmetrySummary]) -> str:
    """One row per backend and case: median (worst) response."""
    rows = [["case", "backend", *(f"{response} median (worst)" for response in RESPONSES)]]
    cells = {(s.case, s.backend, s.revision, s.response): s for s in summary}
    for case, backend, revision in dict.fromkeys((s.case, s.backend, s.revision) for s in summary):
        found = [cells[case, backend, revision, response] for response in RESPONSES]
        label = backend if revision == "ruler" else f"{backend}@{revision}"
        rows.append([case, label, *(f"{percent(s.median)} ({percent(s.worst)})" for s in found)])
    return "symmetry: movement under shifts that must not move it, over the norm\n" + aligned(rows)


def _determinism(repeated: Sequence[Repeatability]) -> str:
    """One row per backend, case and request: `same bits`, or the spread, of every tensor."""
    rows = [["case", "backend", "deterministic", "repeats", *TENSORS, "note"]]
    cells = {(r.case, r.backend, r.revision, r.deterministic_requested, r.tensor): r for r in repeated}
    for key in dict.fromkeys(key[:4] for key in cells):
        case, backend, revision, requested = key
        found = [cells[*key, tensor] for tensor in TENSORS]
        values = ["" if r.spread is None else "same bits" if r.bitwise else percent(r.spread) for r in found]
        label = backend if revision == "ruler" else f"{backend}@{revision}"
        asked = "asked" if requested else "not asked"
        rows.append([case, label, asked, str(found[0].repeats), *values, found[0].detail or ""])
    return "determinism: spread between repeats of the same call\n" + aligned(rows)


def comparison(rows: Sequence[Row]) -> str:
    """Two reports: one line per quantity, what matters most first."""
    cells = [["verdict", "backend", "where", "quantity", "A", "B", "B / A", "interval", "note"]]
    for row in rows:
        values = [_value(row.quantity, value) for value in (row.first, row.second)]
        between = row.interval
        ratio = [f"{between.ratio:.3f}", f"{between.low:.3f} … {between.high:.3f}"] if between else ["", ""]
        verdict = row.verdict if row.decides else f"({row.verdict})"
        cells.append([verdict, row.backend, row.where, row.quantity, *values, *ratio, row.note])
    counts = Counter(row.verdict for row in rows if row.decides)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in SEVERITY)
    return f"{aligned(cells)}\n\n{summary} (in brackets: shown, does not decide)"


def _value(quantity: str, value: float | None) -> str:
    if value is None:
        return ""
    if quantity.endswith("seconds"):
        return _milliseconds(value)
    return percent(value) if quantity.endswith("error") else f"{value:.3f}"


def _throughput(report: Report) -> str:
    assert report.throughput is not None
    columns = ["case", "pass", "backend", "median", "launch", "graph", "TFLOP/s", "memory"]
    rows = [[*columns, "against", "ratio", "interval", "pairs"]]
    measured = {(m.backend, m.revision, m.case, m.pass_): _measured(m) for m in report.throughput.measurements}
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
                *measured.get(key, [""] * 5),
                against,
                f"{c.ratio:.3f}",
                f"{c.low:.3f} … {c.high:.3f}",
                _pairs(c),
            ]
        )
    for m in report.throughput.measurements:
        if (m.backend, m.revision, m.case, m.pass_) not in compared:
            rows.append([m.case, m.pass_, f"{m.backend}@{m.revision}", *_measured(m), "", "", "", ""])
    found = report.throughput.ceilings
    ceilings = (
        f" (a matrix product here: {plain(found.matmul_tflops)} TFLOP/s, a copy: {plain(found.copy_gb_s)} GB/s)"
        if found
        else ""
    )
    kernels = [_kernels(report.throughput.kernels)] if report.throughput.kernels else []
    return "\n\n".join([f"time{ceilings}\n" + aligned(_without_empty(rows, ("launch", "graph"))), *kernels])


def _without_empty(rows: Sequence[Sequence[str]], names: Collection[str]) -> list[list[str]]:
    """Rows without those of the named columns that say nothing."""
    kept = [column for column, name in enumerate(rows[0]) if name not in names or any(row[column] for row in rows[1:])]
    return [[row[column] for column in kept] for row in rows]


def _kernels(kernels: Sequence[Kernel]) -> str:
    """One row per kernel, the longest SHOWN_KERNELS of each pass."""
    rows = [["case", "pass", "backend", "kernel", "launches", "time", "registers", "spills", "shared", "grid", "block"]]
    shown: Counter[tuple[str, ...]] = Counter()
    for k in sorted(kernels, key=lambda kernel: -kernel.seconds):
        place = (k.case, k.pass_, k.backend, k.revision)
        shown[place] += 1
        if shown[place] <= SHOWN_KERNELS:
            sizes = ("×".join(map(str, size)) for size in (k.grid, k.block))
            counts = ("" if count is None else str(count) for count in (k.registers_per_thread, k.spills))
            shared = "" if k.shared_memory_bytes is None else f"{k.shared_memory_bytes / 1024:.1f} KiB"
            cells = [k.kernel[:SHOWN_NAME], str(k.launches), _milliseconds(k.seconds), *counts, shared, *sizes]
            rows.append([k.case, k.pass_, f"{k.backend}@{k.revision}", *cells])
    order = sorted(rows[1:], key=lambda row: row[:3])
    return f"kernels (a profiler's, in a process of their own; the longest {SHOWN_KERNELS})\n" + aligned(
        [rows[0], *order]
    )


def _measured(m: Measurement) -> list[str]:
    share = "" if m.ceiling_share is None else f" ({100 * m.ceiling_share:.0f}%)"
    rate = "" if m.tflops is None else f"{plain(m.tflops)}{share}"
    memory = "" if m.peak_memory_bytes is None else f"{m.peak_memory_bytes / 2**20:.0f} MiB"
    graph = "no: " + m.graph_detail.partition(":")[0] if m.graph_detail else _milliseconds(m.graph_seconds)
    return [_milliseconds(m.median_seconds), _milliseconds(m.host_seconds), graph, rate, memory]


def _pairs(c: Comparison) -> str:
    processes = f" in {c.processes} processes" if c.processes > 1 else ""
    return f"{c.pairs}{processes}" + (f" ({c.void_pairs} void)" if c.void_pairs else "")


def _step(step: Step) -> str:
    """One row per backend and comparison of a training step."""
    rows = [["model", "backend", "median", "attention", "memory", "loss", "against", "ratio", "interval", "pairs"]]
    for m in step.measurements:
        share = "" if m.attention_share is None else percent(m.attention_share)
        memory = "" if m.peak_memory_bytes is None else f"{m.peak_memory_bytes / 2**30:.1f} GiB"
        cells = [_milliseconds(m.median_seconds), share, memory, f"{m.loss:.4f}"]
        row = [m.model, f"{m.backend}@{m.revision}", *cells]
        found = [c for c in step.comparisons if (c.backend, c.revision, c.case) == (m.backend, m.revision, m.model)]
        for c in found:
            against = "itself (A/A control)" if c.control else f"{c.against_backend}@{c.against_revision}"
            rows.append([*row, against, f"{c.ratio:.3f}", f"{c.low:.3f} … {c.high:.3f}", _pairs(c)])
        if not found:
            rows.append([*row, "", "", "", ""])
    return "training step\n" + aligned(rows)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.3f} ms"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as columns, the first row underlined."""
    lines = in_columns(rows)
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, the cells of a column below each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
