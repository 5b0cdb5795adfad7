"""Assembles the history page: one metric over commits, with the gate's limit and the failing values marked."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from sqlalchemy.orm import Session

from gprojci_dashboards.charts.history import Change, Commit, HistoryData, Line, Value
from gprojci_service.models import Project, Series
from gprojci_service.pages import drawings, findings, repository, service
from gprojci_service.pages.formatting import absolute, clean, first_line, metric
from gprojci_service.pages.repository import ValueRow
from gprojci_service.pages.scatter import PREFERRED_INPUT, pick
from gprojci_service.pages.schemas import Drawing, HistoryView
from gprojci_service.projects.ancestry import in_order, moment_of
from gprojci_service.regressions import curves

COMMITS = 200
_ORDER = ("dq_error", "dq_error_worst", "dk_error", "dk_error_worst", "forward_backward_ratio_anchor")


def history(session: Session, owner: str, name: str, choices: Mapping[str, str], backends: list[str]) -> HistoryView:
    """One metric of a project over commits; `choices` come from the address.

    Raises:
        ProjectNotFound: there is no such project.
    """
    project = service.project_named(session, owner, name)
    everything = repository.series_of(session, project.id)
    metrics = sorted(
        {item.metric for item in everything},
        key=lambda key: (key not in _ORDER, _ORDER.index(key) if key in _ORDER else 0, key),
    )
    chosen = pick(choices.get("metric"), metrics)
    of_metric = [item for item in everything if item.metric == chosen]
    hardwares = sorted({item.hardware for item in of_metric})
    hardware = pick(choices.get("hardware"), hardwares)
    cases = list(dict.fromkeys(item.case for item in of_metric if item.hardware == hardware))
    case = pick(choices.get("input"), cases, PREFERRED_INPUT)
    there = [item for item in of_metric if item.hardware == hardware and item.case == case]
    rulers = list(dict.fromkeys(item.ruler_revision for item in reversed(there)))
    ruler = pick(choices.get("ruler"), rulers)
    offered = {item.backend: item for item in there if item.ruler_revision == ruler}
    selected = [backend for backend in offered if not backends or backend in backends]
    refs = repository.refs(session, project.id)
    ref = pick(choices.get("ref"), ["", *refs])
    rows = repository.history_values(session, [offered[backend].id for backend in selected], ref or None, COMMITS)
    drawing = None
    if rows:
        limit = findings.limit_of_metric(repository.policy_in_force(session, project.id), chosen)
        drawing = draw(session, project, [offered[backend] for backend in selected], rows, limit)
    return HistoryView(
        project=project,
        metric=chosen,
        metrics=tuple(metrics),
        metric_words={key: metric(key) for key in metrics},
        case=case,
        cases=tuple(cases),
        hardware=hardware,
        hardwares=tuple(hardwares),
        ruler=ruler,
        rulers=tuple(rulers),
        ruler_words={revision: revision[:16] for revision in rulers},
        ref=ref,
        refs=("", *refs),
        ref_words=service.ref_words(refs),
        backends=tuple(offered),
        chosen=tuple(selected),
        drawing=drawing,
    )


def draw(
    session: Session, project: Project, series: list[Series], rows: list[ValueRow], limit: float | None
) -> Drawing:
    """Series of one metric and case over the commits of `rows`, with their changes of level on the default branch."""
    chosen, case = series[0].metric, series[0].case
    ordered = in_order({row.commit.id: row.commit for row in rows}.values())
    position = {commit.id: index for index, commit in enumerate(ordered)}
    verdicts = repository.verdicts_of_jobs(session, {row.job_id for row in rows})
    failing = {(job_id, *key) for job_id, verdict in verdicts.items() for key in findings.failing_metrics(verdict)}
    lines = []
    for item in series:
        at: dict[int, list[ValueRow]] = {}
        for row in rows:
            if row.series.id == item.id:
                at.setdefault(row.commit.id, []).append(row)
        values = []
        for commit_id in sorted(at, key=position.__getitem__):
            own = [row for row in at[commit_id] if row.sample.revision != "base"] or at[commit_id]
            measured = [row.sample.value for row in at[commit_id]]
            newest, again = own[-1], len(at[commit_id]) > 1
            key = (newest.job_id, item.backend, case, chosen)
            failed = key in failing and newest.sample.revision == "head"
            values.append(
                Value(
                    position=position[commit_id],
                    value=median(row.sample.value for row in own),
                    low=min(measured) if again else newest.sample.low,
                    high=max(measured) if again else newest.sample.high,
                    verdict="fail" if failed else "",
                    url=f"/jobs/{newest.job_id}",
                )
            )
        lines.append(Line(item.backend, tuple(values)))
    data = HistoryData(
        metric=metric(chosen),
        unit=series[0].unit,
        commits=tuple(
            Commit(
                index,
                commit.sha,
                first_line(commit.message),
                clean(commit.author_name) or "unknown author",
                absolute(moment_of(commit)),
            )
            for index, commit in enumerate(ordered)
        ),
        lines=tuple(lines),
        limit=limit,
        against="the anchor" if "ratio_anchor" in chosen else "",
        changes=tuple(
            Change(curve.series.backend, position[curve.commits[step.index].id], step.change)
            for curve, steps in curves.of_series(session, project, [item.id for item in series])
            for step in steps
            if curve.commits[step.index].id in position
        ),
    )
    caption = (
        f"{len(ordered)} commits, oldest on the left. Bars span re-runs or the interval. "
        "A cross failed the gate; a click opens its job. A triangle: the level of the default branch changed here."
    )
    return drawings.history(data, caption)
