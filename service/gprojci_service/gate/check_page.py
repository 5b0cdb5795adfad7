"""What a reviewer reads in the check run: the verdict, every limit with base and head, and what it was measured on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from gprojci_service.gate.finding import Decision, Finding, VerdictWord
from gprojci_service.github.check_output import TEXT_LIMIT, Annotation, CheckOutput
from gprojci_service.github.markdown import MARKS, code, fence, literal, size, table
from gprojci_service.models import Job, Project
from gprojci_service.pages.findings import is_memory, is_time, label, value_of
from gprojci_service.pages.formatting import DASH, duration, fraction, memory, number, ratio, seconds, signed_percent
from gprojci_suite.contract.errors import Problem
from gprojci_suite.contract.report import Report, Slice

MANIFEST = "gprojci.toml"
WORDS: dict[VerdictWord, str] = {"pass": "Passes", "fail": "Fails", "neutral": "Cannot tell", "error": "Not judged"}
MERGE: dict[VerdictWord, str] = {
    "neutral": "This does not block the merge: it could not be told either way.",
    "error": "Nothing was judged, by a fault that is not the commit's. It blocks the merge until it is measured again: "
    "Re-run here, or",
}
WORST_SLICES = 8
RESERVE = 1000
"""Bytes kept for what follows a table."""


@dataclass(frozen=True)
class Case:
    """What a check run is about."""

    job: Job
    project: Project
    public_url: str
    report: Report | None
    read_from: str = ""
    """Which commit's manifest set the limits, `base` or `head`; empty where none was read."""
    problems: tuple[Problem, ...] = ()
    """What is wrong in the head's manifest."""
    taken_from_job: int | None = None
    """The job whose measurement this one took over."""

    @property
    def page(self) -> str:
        return f"{self.public_url}/jobs/{self.job.id}"


def output(made: Decision, case: Case) -> CheckOutput:
    """The check run of a verdict."""
    title = f"{WORDS[made.verdict]}: {made.summary}"
    return CheckOutput(
        title=title,
        summary="\n".join(_summary(made, case, title)),
        text="\n".join(_text(made, case)),
        annotations=tuple(
            Annotation(MANIFEST, problem.line or 1, problem.problem, f"{MANIFEST} cannot be used", problem.column)
            for problem in case.problems
        ),
    )


def _summary(made: Decision, case: Case, title: str) -> list[str]:
    lines = [f"**{MARKS[made.verdict]} {literal(title)}**", "", " · ".join(_links(case)), ""]
    if made.verdict in MERGE:
        again = f" `gprojci job rerun {case.job.id}`." if made.verdict == "error" else ""
        lines += [MERGE[made.verdict] + again, ""]
    if case.problems:
        rows: list[tuple[str, ...]] = [(str(found.line or DASH), literal(found.problem)) for found in case.problems]
        return [*lines, *table(("line", f"what is wrong in {MANIFEST}"), rows, TEXT_LIMIT - size(lines) - RESERVE, "")]
    if case.report is None:
        return [*lines, *fence(case.job.detail or "no detail")]
    if case.taken_from_job is not None:
        measured = f"[job {case.taken_from_job}]({case.public_url}/jobs/{case.taken_from_job})"
        lines += [f"Not measured again: builds, settings and device are those of {measured}.", ""]
    lines += [_source(case), ""]
    head = ("verdict", "check", "backend", "on", "base", "head", "change (interval)", "limit", "set by")
    rows = [_row(finding, case) for finding in made.findings]
    return [*lines, *table(head, rows, TEXT_LIMIT - size(lines) - RESERVE, f"all are on the [job's page]({case.page})")]


def _links(case: Case) -> Iterator[str]:
    job, api = case.job, f"{case.public_url}/api/v1/jobs/{case.job.id}"
    yield f"[Job {job.id}]({case.page})"
    if job.merge_base_sha:
        commits = f"base={job.merge_base_sha[:12]}&head={job.head_sha[:12]}"
        yield f"[Compare with base]({case.public_url}/projects/{quote(case.project.name)}/compare?{commits})"
    yield f"[Log]({api}/log)"
    if case.report is not None:
        yield f"[Report]({api}/report)"
        yield f"[All slices]({api}/slices.csv)"


def _source(case: Case) -> str:
    sha = case.job.merge_base_sha if case.read_from == "base" else case.job.head_sha
    whose = "the base's" if case.read_from == "base" else "the head's own, since the base has none:"
    return f"Limits are {whose} {_manifest_line(case, None)} at {code((sha or '')[:10])}."


def _manifest_line(case: Case, line: int | None) -> str:
    sha = case.job.merge_base_sha if case.read_from == "base" else case.job.head_sha
    text = MANIFEST if line is None else f"line {line}"
    address = case.project.html_url or ""
    if sha is None or not address.startswith(("https://", "http://")):
        return text
    place = f"{quote(address, safe=':/')}/blob/{sha}/{MANIFEST}"
    return f"[{text}]({place}{'' if line is None else f'#L{line}'})"


def _row(finding: Finding, case: Case) -> tuple[str, ...]:
    key = finding.limit_key
    note = "" if finding.required else "<br>informative"
    if finding.accepted is not None:
        note = f"<br>**{literal(finding.accepted)}**"
    check = f"{literal(str(label(key)))}{note}"
    where = code(finding.case or "")
    if finding.slice and key.endswith("_worst_ceiling"):
        where += f"<br>{code(finding.slice)}"
    start = (f"{MARKS[finding.verdict]} {finding.verdict}", check, code(finding.backend), where)
    set_by = DASH if finding.line is None else _manifest_line(case, finding.line)
    if finding.value is None or key == "nonfinite":
        words = finding.message.removeprefix(f"{finding.backend}: ")
        return (*start, DASH, literal(words, 300), DASH, DASH, set_by)
    base, head, change = (
        _times(finding, case) if is_time(key) else _memory(finding) if is_memory(key) else _values(finding)
    )
    return (*start, base, head, change, _limit(finding), set_by)


def _memory(finding: Finding) -> tuple[str, str, str]:
    """Base (or anchor), head and change of an amount of memory."""
    value, base = finding.value, finding.base
    if value is None or base is None:
        return DASH, DASH, DASH
    whose = "" if finding.limit_key.endswith("_increase") else "<br>(anchor)"
    return memory(base) + whose, memory(base * (1 + value)), signed_percent(value)


def _values(finding: Finding) -> tuple[str, str, str]:
    """Base, head and change of an error or a count; a ratio is its own change."""
    key, value, base = finding.limit_key, finding.value, finding.base
    if value is None:
        return DASH, DASH, DASH
    if key.endswith("_ratio"):
        return fraction(base), fraction(None if base is None else base * value), ratio(value)
    return value_of(key, base), value_of(key, value), _change(value, base)


def _change(value: float, base: float | None) -> str:
    """+5% up to twice the base, 220× beyond it."""
    if not base or not math.isfinite(value / base):
        return DASH
    return signed_percent(value / base - 1) if value < 2 * base else ratio(value / base)


def _times(finding: Finding, case: Case) -> tuple[str, str, str]:
    """Base (or anchor), head and change of a time, with the interval of the change."""
    to_base = finding.limit_key.endswith("_increase")
    step = finding.limit_key.startswith("step_")
    times = _medians(case.report, step=step) if case.report else {}
    anchors = [entry.backend for entry in case.report.backends if entry.role == "anchor"] if case.report else []
    other = (finding.backend, "base") if to_base else (anchors[0], "ruler") if anchors else ("", "")
    before = times.get((*other, finding.case or ""))
    after = times.get((finding.backend, "head", finding.case or ""))
    interval = ""
    if finding.low is not None and finding.high is not None:
        interval = f"<br>{signed_percent(finding.low)} … {signed_percent(finding.high)}"
    base = DASH if before is None else seconds(before) + ("" if to_base else "<br>(anchor)")
    return base, seconds(after), f"{signed_percent(finding.value)}{interval}"


def _medians(report: Report, *, step: bool) -> dict[tuple[str, str, str], float]:
    """Median seconds by backend, revision and case."""
    if step:
        trained = report.step.measurements if report.step else ()
        return {(entry.backend, entry.revision, entry.model): entry.median_seconds for entry in trained}
    timed = report.throughput.measurements if report.throughput else ()
    return {
        (entry.backend, entry.revision, entry.case): entry.median_seconds
        for entry in timed
        if entry.pass_ == "forward_backward"
    }


def _limit(finding: Finding) -> str:
    return value_of(finding.limit_key, finding.limit)


def _text(made: Decision, case: Case) -> list[str]:
    report = case.report
    if report is None:
        return []
    lines = [*_worst_slices(made, report), "### Measured on", ""]
    lines += [f"* {name}: {literal(words, 200)}" for name, words in _facts(report, case.job)]
    return [*lines, "", "### Measure it again", "", *fence(report.repro, language="sh")]


def _worst_slices(made: Decision, report: Report) -> list[str]:
    gated = {(finding.backend, finding.limit_key.partition("_")[0]) for finding in made.findings}
    slices = report.accuracy.slices if report.accuracy else ()
    before = {
        (entry.backend, entry.input, entry.slice, entry.tensor): entry for entry in slices if entry.revision == "base"
    }
    heads = [entry for entry in slices if entry.revision == "head" and (entry.backend, entry.tensor) in gated]
    worst = sorted((entry for entry in heads if not entry.vanishing), key=_badness, reverse=True)[:WORST_SLICES]
    if not worst:
        return []
    rows = []
    for entry in worst:
        base = before.get((entry.backend, entry.input, entry.slice, entry.tensor))
        rows.append(
            (
                str(label(f"{entry.tensor}_error_ceiling")).partition(" ")[0],
                code(entry.input),
                code(entry.slice),
                code(entry.backend),
                DASH if base is None else _slice_error(base),
                _slice_error(entry),
            )
        )
    head = ("tensor", "input set", "slice (layer, batch, head)", "backend", "base", "head")
    return ["### Worst slices", "", *table(head, rows, TEXT_LIMIT // 2, ""), ""]


def _badness(entry: Slice) -> float:
    return entry.rel_err if math.isfinite(entry.rel_err) and not entry.nonfinite else math.inf


def _slice_error(entry: Slice) -> str:
    return f"{number(entry.nonfinite)} NaN or Inf" if entry.nonfinite else fraction(entry.rel_err)


def _facts(report: Report, job: Job) -> Iterator[tuple[str, str]]:
    """What a number depends on, in words."""
    facts = report.environment
    yield "Device", f"{facts.device_name}, class {job.hardware}"
    software = [f"torch {facts.torch}", f"Python {facts.python}", facts.platform]
    software += [f"{name} {version}" for name, version in (("CUDA", facts.cuda), ("driver", facts.driver)) if version]
    yield "Software", ", ".join(software)
    if facts.throttle_reasons:
        yield "Throttled", ", ".join(facts.throttle_reasons)
    yield "Ruler", f"gprojci-suite {report.ruler.version}, revision {report.ruler.revision}"
    yield "Commits", f"head {job.head_sha[:10]}, base {(job.merge_base_sha or 'none')[:10]}"
    yield "Session", f"{report.created_at}, {duration(report.duration_seconds)}, seed {report.seed}"
