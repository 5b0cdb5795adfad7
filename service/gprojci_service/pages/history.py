"""Assembles the history page: one metric over commits, with the gate's limit and the failing values marked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median

from sqlalchemy.orm import Session

from gprojci_dashboards.charts.history import Change, Commit, HistoryData, Line, Value
from gprojci_service import models
from gprojci_service.models import Project, Series
from gprojci_service.pages import drawings, findings, repository, service, values_repository
from gprojci_service.pages.formatting import absolute, clean, first_line, metric
from gprojci_service.pages.scatter import PREFERRED_INPUT, pick
from gprojci_service.pages.schemas import Drawing, HistoryView
from gprojci_service.pages.values_repository import HistoryCommit, HistoryValue, Offered, Span
from gprojci_service.projects.ancestry import in_order, moment_of
from gprojci_service.regressions import repository as regressions

SESSIONS = 200
"""Sessions that are shown one by one; of more, this many parts are shown, which the database makes."""
SPANS: dict[str, int | None] = {"newest": SESSIONS, "1000": 1000, "5000": 5000, "all": None}
_SPAN_WORDS = {"newest": f"the newest {SESSIONS}", "1000": "the newest 1,000", "5000": "the newest 5,000", "all": "all"}
_ORDER = ("dq_error", "dq_error_worst", "dk_error", "dk_error_worst", "forward_backward_ratio_anchor")


def history(session: Session, owner: str, name: str, choices: Mapping[str, str], backends: list[str]) -> HistoryView:
    """One metric of a project over commits; `choices` come from the address.

    Raises:
        ProjectNotFound: there is no such project.
    """
    project = service.project_named(session, owner, name)
    metrics = sorted(
        values_repository.metrics_of(session, project.id),
        key=lambda key: (key not in _ORDER, _ORDER.index(key) if key in _ORDER else 0, key),
    )
    chosen = pick(choices.get("metric"), metrics)
    of_metric = values_repository.series_of(session, project.id, chosen)
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
    span = pick(choices.get("span"), list(SPANS))
    shown = [offered[backend] for backend in selected]
    drawing = None
    if shown:
        limit = findings.limit_of_metric(repository.policy_in_force(session, project.id), chosen)
        ids = [item.id for item in shown]
        few = SPANS[span] == SESSIONS
        part = None if few else _looked_at(session, project, ref or None, choices.get("zoom") or "")
        if few or (part and part.sessions <= SESSIONS):
            rows, jobs = values_repository.history_values(session, project.id, ids, ref or None, SESSIONS, part)
            drawing = draw(session, shown, rows, jobs, limit, resampled=not few) if rows else None
        else:
            drawing = _draw_parts(session, project, shown, ref or None, SPANS[span], limit, part)
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
        span=span,
        spans=tuple(SPANS),
        span_words=_SPAN_WORDS,
        ref=ref,
        refs=("", *refs),
        ref_words=service.ref_words(refs),
        backends=tuple(offered),
        chosen=tuple(selected),
        drawing=drawing,
    )


def _looked_at(session: Session, project: Project, ref: str | None, zoom: str) -> Span | None:
    """The sessions from one commit to another, as the picture puts them into the address; None for all of them."""
    commits = re.match(r"([0-9a-f]{4,40})\.\.([0-9a-f]{4,40})(?:,|$)", zoom)
    return values_repository.span_of(session, project.id, ref, *commits.groups()) if commits else None


def draw(
    session: Session,
    series: Sequence[Series | Offered],
    rows: list[HistoryValue],
    jobs: Mapping[int, int],
    limit: float | None,
    *,
    resampled: bool = False,
) -> Drawing:
    """Series of one metric and case over the commits of `rows`, with their changes of level on the default branch;
    `jobs` are those of the reports. `resampled` where these are a part of more than there is room for."""
    chosen, case = series[0].metric, series[0].case
    ordered = in_order(values_repository.history_commits(session, {row.commit_id for row in rows}))
    position = {commit.id: index for index, commit in enumerate(ordered)}
    failing = {
        (job_id, backend)
        for job_id, backend, where, key in values_repository.failed_findings(session, jobs.values())
        if (where, findings.metric_of_limit(key)) == (case, chosen)
    }
    backend = {item.id: item.backend for item in series}
    by_series: dict[int, dict[int, list[HistoryValue]]] = {item.id: {} for item in series}
    for row in rows:
        by_series[row.series_id].setdefault(position[row.commit_id], []).append(row)
    lines = []
    for number, name in backend.items():
        failed = {report for report, job_id in jobs.items() if (job_id, name) in failing}
        at = sorted(by_series[number].items())
        lines.append(Line(name, tuple(_value(place, measured, jobs, failed) for place, measured in at)))
    data = HistoryData(
        metric=metric(chosen),
        unit=series[0].unit,
        commits=tuple(_place(index, commit) for index, commit in enumerate(ordered)),
        lines=tuple(lines),
        limit=limit,
        against="the anchor" if "ratio_anchor" in chosen else "",
        changes=tuple(
            Change(backend[step.series_id], position[step.commit_id], step.change)
            for step in regressions.steps_of_series(session, backend)
            if step.commit_id in position
        ),
        resampled=resampled,
    )
    caption = (
        f"{len(ordered)} commits, oldest on the left. Bars span re-runs or the interval. "
        "A cross failed the gate; a click opens its job. A triangle: the level of the default branch changed here."
    )
    return drawings.history(data, caption)


def _value(place: int, measured: list[HistoryValue], jobs: Mapping[int, int], failed: set[int]) -> Value:
    """What is shown at a commit of one series, which may have been measured there more than once."""
    newest = measured[-1]
    value, low, high = newest.value, newest.low, newest.high
    if len(measured) > 1:
        heads = [one for one in measured if one.revision != "base"] or measured
        newest, value = heads[-1], median(one.value for one in heads)
        low, high = min(one.value for one in measured), max(one.value for one in measured)
    verdict = "fail" if newest.report_id in failed and newest.revision == "head" else ""
    return Value(place, value, low, high, verdict, f"/jobs/{jobs[newest.report_id]}")


def _draw_parts(
    session: Session,
    project: Project,
    series: list[Offered],
    ref: str | None,
    sessions: int | None,
    limit: float | None,
    part: Span | None,
) -> Drawing | None:
    """Series of one metric and case over more sessions than there is room for: the median of each part of them."""
    ids = [item.id for item in series]
    parts = values_repository.history_buckets(
        session,
        project.id,
        ids,
        ref,
        sessions=None if part else sessions,
        buckets=SESSIONS,
        between=part,
    )
    if not parts:
        return None
    newest: dict[int, int] = {}
    for bucket in parts:
        newest[bucket.place] = max(bucket.report_id, newest.get(bucket.place, 0))
    named = values_repository.commits_of_reports(session, newest.values())
    places = [place for place in sorted(newest) if newest[place] in named]
    position = {place: index for index, place in enumerate(places)}
    lines: dict[int, list[Value]] = {item.id: [] for item in series}
    for bucket in parts:
        if bucket.place in position:
            url = f"/jobs/{named[newest[bucket.place]][1]}"
            value = Value(position[bucket.place], bucket.middle, bucket.low, bucket.high, url=url)
            lines[bucket.series_id].append(value)
    data = HistoryData(
        metric=metric(series[0].metric),
        unit=series[0].unit,
        commits=tuple(_place(index, named[newest[place]][0]) for index, place in enumerate(places)),
        lines=tuple(Line(item.backend, tuple(lines[item.id])) for item in series),
        limit=limit,
        against="the anchor" if "ratio_anchor" in series[0].metric else "",
        resampled=True,
    )
    which = f"{part.sessions:,}" if part else "all" if sessions is None else f"the newest {sessions:,}"
    caption = (
        f"Each point is the median of {which} sessions in {len(places)} parts of as many each, bars span the part; a "
        "click opens the newest job of a part, a range has parts of its own."
    )
    return drawings.history(data, caption)


def _place(index: int, commit: models.Commit | HistoryCommit) -> Commit:
    author = clean(commit.author_name) or "unknown author"
    return Commit(index, commit.sha, first_line(commit.message), author, absolute(moment_of(commit)))
