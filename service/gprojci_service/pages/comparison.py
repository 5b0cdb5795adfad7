"""Assembles the comparison of two commits for the page, with its drawings."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from gprojci_dashboards.charts.error_distribution import DistributionData
from gprojci_dashboards.charts.error_distribution import Side as DistributionSide
from gprojci_dashboards.charts.slices_heatmap import HeatmapData
from gprojci_service.models import Commit, Project
from gprojci_service.pages import comparison_pictures, drawings, environment_changes, findings, repository, service
from gprojci_service.pages.formatting import fraction, metric, short_sha, tensor
from gprojci_service.pages.scatter import PREFERRED_INPUT, pick
from gprojci_service.pages.schemas import CompareView, Drawing, Side
from gprojci_service.projects import repository as project_repository
from gprojci_service.results import service as results
from gprojci_service.results.comparison import CannotCompare, Comparison, of_commits
from gprojci_service.results.excerpts import Wanted
from gprojci_suite.contract.report import Report as SuiteReport
from gprojci_suite.contract.report import Slice

_TENSORS = ("dq", "dk", "dv", "o")


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
        return CompareView(project, "", short_sha(commits[0].sha) if commits else "", commits, recent)
    try:
        return _compared(session, project, base, head, commits, choices)
    except CannotCompare as reason:
        return CompareView(project, base, head, commits, problem=reason.detail, wrong=reason.field)


def _compared(
    session: Session,
    project: Project,
    base_text: str,
    head_text: str,
    commits: tuple[Commit, ...],
    choices: Mapping[str, str],
) -> CompareView:
    compared = of_commits(session, project, base_text, head_text)
    sources, bodies, rows, together = compared.sources, compared.bodies, compared.changes, compared.same_session
    found = project_repository.commits(session, project.id, {compared.base, compared.head})
    base, head = found[compared.base], found[compared.head]
    inputs = [entry.input for entry in bodies[1].inputs]
    backends = [
        entry.backend for entry in bodies[1].backends if entry.revision == sources[1][1] and entry.role == "subject"
    ]
    shown, chosen = pick(choices.get("input"), inputs, PREFERRED_INPUT), pick(choices.get("tensor"), list(_TENSORS))
    changed = rows[0] if rows and rows[0].verdict == "worse" else None
    backend = pick(choices.get("backend"), backends, changed.backend if changed else "")
    ceiling = findings.limit_of_metric(repository.policy_in_force(session, project.id), f"{chosen}_error")
    sides = _slices(session, compared, {"backend": [backend], "input": [shown], "tensor": [chosen]})
    pictures = comparison_pictures.differences(sides, backend, shown, chosen)
    pictures += _pictures(sides, (base, head), backend, shown, chosen, ceiling)
    if together:
        names = (f"base {short_sha(base.sha)}", f"head {short_sha(head.sha)}")
        pictures += [*_ratios(bodies[1], backend), *comparison_pictures.call_times(bodies[1], backend, names)]
    worse, better = compared.count("worse"), compared.count("better")
    return CompareView(
        project=project,
        base_text=short_sha(base.sha),
        head_text=short_sha(head.sha),
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
        same_session=together,
        warning=compared.warning,
        rows=rows,
        changed_words=f"{worse} worse, {better} better, {len(rows) - worse - better} the same or unclear",
        drawings=tuple(pictures),
        inputs=tuple(inputs),
        input=shown,
        tensor=chosen,
        backends=tuple(backends),
        backend=backend,
        environment=() if together else environment_changes.between(*map(environment_changes.facts_of, bodies)),
    )


def _slices(session: Session, compared: Comparison, wanted: Wanted) -> tuple[list[Slice], list[Slice]]:
    """The slices of both sides without those that vanish, read once where they are of one session."""
    (older, base), (newer, head) = compared.sources
    if compared.same_session:
        before = after = results.slices(session, newer, wanted)
    else:
        before = results.slices(session, older, {**wanted, "revision": [base]})
        after = results.slices(session, newer, {**wanted, "revision": [head]})
    return (
        [item for item in before if item.revision == base and not item.vanishing],
        [item for item in after if item.revision == head and not item.vanishing],
    )


def _pictures(
    slices: tuple[list[Slice], list[Slice]],
    commits: tuple[Commit, Commit],
    backend: str,
    shown: str,
    chosen: str,
    ceiling: float | None,
) -> list[Drawing]:
    sides = [{item.slice: item for item in side} for side in slices]
    names = sorted(set(sides[0]) | set(sides[1]))
    if not names:
        return []
    labels = tuple(f"{which} {short_sha(commit.sha)}" for which, commit in zip(("base", "head"), commits, strict=True))
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
