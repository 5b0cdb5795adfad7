"""Decides what a badge says, what is in the feed, and which chart a picture or frame shows."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from gprojci_dashboards import still
from gprojci_service.errors import NotFound
from gprojci_service.models import Project, Verdict
from gprojci_service.pages import findings, history
from gprojci_service.pages import repository as pages
from gprojci_service.pages.formatting import by_unit, clean, first_line, metric, short_sha, signed_percent
from gprojci_service.pages.scatter import PREFERRED_INPUT, pick, scatter
from gprojci_service.pages.schemas import Drawing
from gprojci_service.pages.service import project_named
from gprojci_service.settings import Settings
from gprojci_service.sharing import repository
from gprojci_service.sharing.badge import Badge
from gprojci_service.sharing.feed import Entry, atom

ENTRIES = 50
CHARTS = ("history", "pareto")
_VALUES = {
    **{f"{tensor}_error": f"{tensor}_error" for tensor in ("dq", "dk", "dv", "o")},
    "kernel_overhead": "forward_backward_ratio_anchor",
    "step_overhead": "step_ratio_anchor",
}
BADGES = ("gate", *_VALUES)
"""What a badge can say."""
_LABELS = {"kernel_overhead": "kernel overhead", "step_overhead": "step overhead"}
_VERDICTS = {"pass": "pass", "fail": "fail", "neutral": "cannot tell", "error": "error"}
_NOTHING = "no data"


class BadgeNotFound(NotFound):
    """There is no such badge."""


class ChartNotFound(NotFound):
    """There is no such chart, or nothing to draw in it."""


def badge(session: Session, owner: str, name: str, what: str, choices: Mapping[str, str]) -> Badge:
    """What a badge says of the default branch; `choices` are `input`, `backend` and `hardware` from the address.

    Raises:
        ProjectNotFound, BadgeNotFound: there is none of that name.
    """
    project = project_named(session, owner, name)
    if what == "gate":
        return _gate(repository.newest_verdict(session, project))
    if what not in _VALUES:
        raise BadgeNotFound(f"no badge is called {what}; there are {', '.join(BADGES)}")
    return _value(session, project, what, choices)


def _gate(verdict: Verdict | None) -> Badge:
    if verdict is None:
        return Badge("gate", _NOTHING, "", "nothing has been decided on the default branch yet")
    words = f"{_VERDICTS[verdict.verdict]} at {short_sha(verdict.head_sha)}: {clean(verdict.summary)}"
    return Badge("gate", _VERDICTS[verdict.verdict], verdict.verdict, words)


def _value(session: Session, project: Project, what: str, choices: Mapping[str, str]) -> Badge:
    rows = repository.newest_values(session, project, _VALUES[what])
    wanted = {"case": choices.get("input"), "backend": choices.get("backend"), "hardware": choices.get("hardware")}
    rows = [row for row in rows if all(each in (None, getattr(row[0], key)) for key, each in wanted.items())]
    case = pick(None, list(dict.fromkeys(series.case for series, _, _ in rows)), PREFERRED_INPUT)
    label = _LABELS.get(what) or metric(what).removesuffix(", median")
    if not rows:
        return Badge(label, _NOTHING, "", "not measured on the default branch yet")
    series, sample, commit = next(row for row in rows if row[0].case == case)
    limit = findings.limit_of_metric(pages.policy_in_force(session, project.id), series.metric)
    if series.unit == "ratio":
        text, bound = signed_percent(sample.value - 1), signed_percent(limit - 1) if limit is not None else ""
    else:
        text, bound = by_unit(sample.value, series.unit), by_unit(limit, series.unit)
    over = limit is not None and sample.value > limit
    about = f"{text} at {short_sha(commit.sha)}, {series.backend} on {series.case}, {series.hardware}"
    about += "" if limit is None else f", limit {bound}"
    tone = "" if limit is None else "fail" if over else "pass"
    return Badge(label, f"{text} > {bound}" if over else text, tone, clean(about))


def feed(session: Session, settings: Settings, owner: str, name: str) -> bytes:
    """The Atom feed of verdicts on a project's default branch, newest first.

    Raises:
        ProjectNotFound: there is none of that name.
    """
    project = project_named(session, owner, name)
    page = f"{settings.public_url}/projects/{project.name}"
    entries = [
        Entry(
            address=f"{settings.public_url}/jobs/{job.id}",
            title=f"{_VERDICTS[verdict.verdict]}: {first_line(commit.message) if commit else short_sha(job.head_sha)}",
            summary=f"{clean(verdict.summary)} ({job.hardware}, commit {short_sha(job.head_sha)})",
            author=clean(commit.author_name) if commit else "",
            updated=verdict.decided_at,
        )
        for verdict, job, commit in repository.verdicts(session, project, ENTRIES)
    ]
    title = f"Verdicts of {project.name} on {project.default_branch}"
    return atom(title, f"{page}/feed.atom", page, project.created_at, entries)


def drawing(
    session: Session, owner: str, name: str, chart: str, choices: Mapping[str, str], backends: list[str]
) -> tuple[Project, str, Drawing]:
    """A project's chart with the choices of its page: the project, what is shown in words, the chart.

    Raises:
        ProjectNotFound: there is none of that name.
        ChartNotFound: no such chart, or nothing was measured for the choice.
    """
    project = project_named(session, owner, name)
    if chart == "history":
        view = history.history(session, owner, name, choices, backends)
        if view.drawing is not None:
            return project, f"{metric(view.metric)} on {view.case}, {view.hardware}", view.drawing
    elif chart == "pareto":
        shown = scatter(session, project, choices, [project.name])
        if shown is not None:
            words = f"{metric(shown.metric)} on {shown.input}, against the time of {shown.case}, {shown.hardware}"
            return project, words, shown.drawing
    else:
        raise ChartNotFound(f"no chart is called {chart}; there are {' and '.join(CHARTS)}")
    raise ChartNotFound(f"nothing was measured for this choice of {project.name} yet")


def picture(
    session: Session, owner: str, name: str, chart: str, choices: Mapping[str, str], backends: list[str]
) -> str:
    """The same chart as an SVG file.

    Raises:
        ProjectNotFound, ChartNotFound: as `drawing`; also where no value can be drawn.
    """
    project, words, drawn = drawing(session, owner, name, chart, choices, backends)
    draw = still.history if chart == "history" else still.pareto
    try:
        return draw(drawn.data, project.name, words)
    except ValueError as error:
        raise ChartNotFound(f"nothing can be drawn for this choice of {project.name}: {error}") from error


def page_of(project: Project, chart: str, choices: list[tuple[str, str]]) -> str:
    """Address of the page on which a chart stands, with its choices."""
    path = f"/projects/{project.name}{'/history' if chart == 'history' else ''}"
    return f"{path}?{urlencode(choices)}" if choices else path
