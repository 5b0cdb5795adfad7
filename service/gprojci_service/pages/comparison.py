"""Assembles the comparison of two commits: every metric at both, what matters most first.

The verdicts here describe, the gate decides. An error is worse or better when it moved by more than 5%; errors of the
same build vary far less between runs. A time is worse or better when the interval of its paired ratio leaves out 1, and
unclear where it does not or where the commits were measured in different sessions and no interval is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from sqlalchemy.orm import Session

from gprojci_dashboards.charts.error_distribution import DistributionData
from gprojci_dashboards.charts.error_distribution import Side as DistributionSide
from gprojci_dashboards.charts.slices_heatmap import HeatmapData
from gprojci_service.models import Commit, Project, Report
from gprojci_service.pages import drawings, findings, repository, service
from gprojci_service.pages.formatting import fraction, metric, tensor
from gprojci_service.pages.scatter import PREFERRED_INPUT, pick
from gprojci_service.pages.schemas import ChangeRow, CompareView, Drawing, Side
from gprojci_service.results import service as results
from gprojci_suite.contract.report import Report as SuiteReport
from gprojci_suite.contract.report import Slice

MOVED = 1.05
_WEIGHTS = {"dq": 1.0, "dk": 1.0, "dv": 0.8, "o": 0.8}
_TENSORS = ("dq", "dk", "dv", "o")


class _CannotCompare(Exception):
    """Why two commits cannot be compared, in a sentence for the page."""


def compare(session: Session, owner: str, name: str, choices: Mapping[str, str]) -> CompareView:
    """Two commits of a project; `choices` come from the address: base, head, input, tensor, backend.

    Raises:
        ProjectNotFound: there is no such project.
    """
    project = service.project_named(session, owner, name)
    commits = tuple(repository.measured_commits(session, project.id))
    base, head = choices.get("base", "").strip().lower(), choices.get("head", "").strip().lower()
    if not base and not head:
        recent = tuple(repository.measured_against_base(session, project.id, limit=12))
        return CompareView(project, "", commits[0].sha[:8] if commits else "", commits, recent)
    try:
        return _compared(session, project, base, head, commits, choices)
    except _CannotCompare as reason:
        return CompareView(project, base, head, commits, problem=str(reason))


def _commit(session: Session, project: Project, text: str, which: str) -> Commit:
    if not re.fullmatch(r"[0-9a-f]{4,40}", text):
        raise _CannotCompare(f"Give the {which} commit as 4 to 40 hexadecimal digits of its SHA.")
    found = repository.commit_by_prefix(session, project.id, text)
    if not found:
        raise _CannotCompare(f"No commit known here begins with {text}.")
    if len(found) > 1:
        raise _CannotCompare(f"More than one commit begins with {text}; give more digits.")
    return found[0]


def _source(session: Session, project: Project, commit: Commit) -> tuple[Report, str]:
    """The newest result of a commit and the revision it has there."""
    report = repository.newest_report_of(session, project.id, commit.sha)
    if report is not None:
        return report, "head"
    report = repository.newest_report_with_base(session, project.id, commit.sha)
    if report is None:
        raise _CannotCompare(f"Commit {commit.sha[:8]} has no result (yet).")
    return report, "base"


def _compared(
    session: Session,
    project: Project,
    base_text: str,
    head_text: str,
    commits: tuple[Commit, ...],
    choices: Mapping[str, str],
) -> CompareView:
    base, head = _commit(session, project, base_text, "base"), _commit(session, project, head_text, "head")
    together = repository.newest_report_of(session, project.id, head.sha, base.sha)
    if together is not None:
        sources = ((together, "base"), (together, "head"))
    else:
        sources = (_source(session, project, base), _source(session, project, head))
    bodies = tuple(results.read(report) for report, _ in sources)
    rows = _accuracy_rows(bodies, sources) + (_paired_rows(bodies[1]) if together else _anchor_rows(session, sources))
    rank = {"worse": 0, "better": 1, "unclear": 2, "same": 3}
    rows.sort(key=lambda row: (rank[row.verdict], -row.weight))
    slices = tuple(_slices(body, revision) for body, (_, revision) in zip(bodies, sources, strict=True))
    inputs = [entry.input for entry in bodies[1].inputs]
    backends = [
        entry.backend for entry in bodies[1].backends if entry.revision == sources[1][1] and entry.role == "subject"
    ]
    shown, chosen = pick(choices.get("input"), inputs, PREFERRED_INPUT), pick(choices.get("tensor"), list(_TENSORS))
    changed = rows[0] if rows and rows[0].verdict == "worse" else None
    backend = pick(choices.get("backend"), backends, changed.backend if changed else "")
    ceiling = findings.limit_of_metric(repository.policy_in_force(session, project.id), f"{chosen}_error")
    pictures = _pictures((slices[0], slices[1]), (base, head), backend, shown, chosen, ceiling)
    if together:
        pictures += _ratios(bodies[1], backend)
    hardware = {body.environment.hardware for body in bodies}
    rulers = {body.ruler.revision for body in bodies}
    warning = "They ran on different hardware, so no time is compared." if len(hardware) > 1 else ""
    if len(rulers) > 1:
        warning += " The rulers differ."
    worse, better = sum(row.verdict == "worse" for row in rows), sum(row.verdict == "better" for row in rows)
    return CompareView(
        project=project,
        base_text=base.sha[:8],
        head_text=head.sha[:8],
        commits=commits,
        sides=tuple(
            Side(
                name,
                commit,
                report.job_id,
                repository.verdict_of_job(session, report.job_id) if revision == "head" else None,
            )
            for name, commit, (report, revision) in zip(("Base", "Head"), (base, head), sources, strict=True)
        ),
        same_session=together is not None,
        warning=warning.strip(),
        rows=tuple(rows),
        changed_words=f"{worse} worse, {better} better, {len(rows) - worse - better} the same or unclear",
        drawings=tuple(pictures),
        inputs=tuple(inputs),
        input=shown,
        tensor=chosen,
        backends=tuple(backends),
        backend=backend,
    )


def _accuracy_rows(bodies: tuple[SuiteReport, ...], sources: tuple[tuple[Report, str], ...]) -> list[ChangeRow]:
    sides = []
    for body, (_, revision) in zip(bodies, sources, strict=True):
        lines = body.accuracy.summary if body.accuracy else ()
        sides.append({(line.backend, line.input, line.tensor): line for line in lines if line.revision == revision})
    rows = []
    for key, after in sides[1].items():
        before = sides[0].get(key)
        if before is None:
            continue
        for name, old, new, share in (
            (f"{key[2]}_error", before.median, after.median, 1.0),
            (f"{key[2]}_error_worst", before.worst, after.worst, 0.6),
        ):
            if not (math.isfinite(old) and old > 0 and new > 0):
                continue
            change = new / old
            verdict = "worse" if change > MOVED else "better" if change < 1 / MOVED else "same"
            distance = abs(math.log(change)) if math.isfinite(change) else 100.0
            weight = distance * _WEIGHTS[key[2]] * share
            rows.append(ChangeRow(verdict, name, "fraction", key[0], key[1], old, new, change, None, None, weight))
    return rows


def _paired_rows(body: SuiteReport) -> list[ChangeRow]:
    if body.throughput is None:
        return []
    medians = {
        (item.backend, item.revision, item.case, item.pass_): item.median_seconds
        for item in body.throughput.measurements
    }
    rows = []
    for item in body.throughput.comparisons:
        if (
            (item.revision, item.against_revision) != ("head", "base")
            or item.backend != item.against_backend
            or item.control
        ):
            continue
        old = medians.get((item.backend, "base", item.case, item.pass_))
        new = medians.get((item.backend, "head", item.case, item.pass_))
        if old is None or new is None:
            continue
        verdict = "worse" if item.low > 1 else "better" if item.high < 1 else "unclear"
        weight = abs(math.log(item.ratio)) * 3
        name = f"{item.pass_}_seconds"
        rows.append(
            ChangeRow(
                verdict, name, "seconds", item.backend, item.case, old, new, item.ratio, item.low, item.high, weight
            )
        )
    return rows


def _anchor_rows(session: Session, sources: tuple[tuple[Report, str], ...]) -> list[ChangeRow]:
    """Times of different sessions: only the ratios to the anchor, and only within one hardware class and ruler."""
    sides = []
    for report, revision in sources:
        values = repository.report_values(session, report.id)
        sides.append(
            {
                row.series.id: row
                for row in values
                if row.sample.revision == revision and row.series.metric.endswith("_ratio_anchor")
            }
        )
    rows = []
    for key, after in sides[1].items():
        before = sides[0].get(key)
        if before is not None:
            old, new = before.sample.value, after.sample.value
            series = after.series
            weight = abs(math.log(new / old)) * 2
            rows.append(
                ChangeRow(
                    "unclear",
                    series.metric,
                    "ratio",
                    series.backend,
                    series.case,
                    old,
                    new,
                    new / old,
                    None,
                    None,
                    weight,
                )
            )
    return rows


def _slices(body: SuiteReport, revision: str) -> list[Slice]:
    return [item for item in body.accuracy.slices if item.revision == revision] if body.accuracy else []


def _pictures(
    slices: tuple[list[Slice], list[Slice]],
    commits: tuple[Commit, Commit],
    backend: str,
    shown: str,
    chosen: str,
    ceiling: float | None,
) -> list[Drawing]:
    sides = [
        {
            item.slice: item
            for item in side
            if (item.backend, item.input, item.tensor) == (backend, shown, chosen) and not item.vanishing
        }
        for side in slices
    ]
    names = sorted(set(sides[0]) | set(sides[1]))
    if not names:
        return []
    labels = tuple(f"{which} {commit.sha[:7]}" for which, commit in zip(("base", "head"), commits, strict=True))
    word = str(tensor(chosen))
    distribution = DistributionData(
        word,
        tuple(
            DistributionSide(label, tuple(item.rel_err for item in side.values()), tuple(side))
            for label, side in zip(labels, sides, strict=True)
        ),
        ceiling,
    )
    heat = HeatmapData(
        word,
        tuple(names),
        labels,
        tuple(tuple(side[name].rel_err if name in side else None for side in sides) for name in names),
        ceiling,
        "slice",
        "commit",
    )
    what = f"{word} error of {backend} on {shown}"
    limit = f" The gate's limit is {fraction(ceiling)}" if ceiling is not None else ""
    return [
        drawings.distribution(
            distribution,
            f"{what}: the share of slices at or below each error. Further left is better."
            + (f"{limit} (dashed)." if limit else ""),
        ),
        drawings.heatmap(heat, f"{what}, slice by slice.{f'{limit}: the colours turn there.' if limit else ''}"),
    ]


def _ratios(body: SuiteReport, backend: str) -> list[Drawing]:
    found = [
        (f"{metric(f'{item.pass_}_x').removesuffix(' time')}{', A/A control' if item.control else ''}", item)
        for item in (body.throughput.comparisons if body.throughput else ())
        if item.backend == backend and item.against_backend == backend
    ]
    if not found:
        return []
    caption = f"Head over base of {backend}, pair by pair in one session; the control times the same code twice."
    return [drawings.paired_ratios(found, caption)]
