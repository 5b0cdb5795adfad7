"""Assembles the list of regressions and the page of one."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from gprojci_service.bisections import repository as searches
from gprojci_service.bisections.evidence import METRICS
from gprojci_service.models import Bisection, Commit, Project, Regression, RegressionSeries, Series
from gprojci_service.models.regression import OPEN_REGRESSION_STATES, REGRESSION_STATES
from gprojci_service.pages import history, values_repository
from gprojci_service.pages import repository as pages
from gprojci_service.pages.addresses import address
from gprojci_service.pages.formatting import by_unit, metric
from gprojci_service.pages.regression_views import (
    RegressionRow,
    RegressionSeriesView,
    RegressionsView,
    RegressionView,
)
from gprojci_service.pages.scatter import pick
from gprojci_service.regressions import repository, service, wording

PAGE = 50
SESSIONS = 120
BISECTIONS = 50
"""Newest of the project that are looked through."""
SORTS = {"newest": "newest first", "changed": "last changed first"}
_FILTERS = {"open": "open", **dict.fromkeys(REGRESSION_STATES, ""), "all": "all"}


def regressions(session: Session, choices: Mapping[str, str], page: int) -> RegressionsView:
    """The list, by what the address chooses: state, project, order."""
    state = pick(choices.get("state"), list(_FILTERS), "open")
    names = [project.name for project in pages.projects(session)]
    project = pick(choices.get("project"), ["", *names])
    sort = pick(choices.get("sort"), list(SORTS), "newest")
    states = {"open": OPEN_REGRESSION_STATES, "all": ()}.get(state, (state,))
    found = pages.regressions(session, project, states, sort, (page - 1) * PAGE, PAGE + 1)
    chosen = {"state": state, "project": project, "sort": sort}
    shown = repository.series_of_all(session, [regression.id for regression, _ in found[:PAGE]])
    commits = {commit.id: commit for commit in repository.commits(session, {one.first_bad_id for one, _ in found})}
    return RegressionsView(
        rows=tuple(
            _row(regression, owner, commits[regression.first_bad_id], shown.get(regression.id, []))
            for regression, owner in found[:PAGE]
        ),
        state=state,
        states=tuple((key, words or key) for key, words in _FILTERS.items()),
        project=project,
        projects=("", *names),
        project_words={"": "all projects"} | {name: name for name in names},
        sort=sort,
        sorts=tuple(SORTS),
        sort_words=SORTS,
        address=lambda **other: address("/regressions", chosen | other),
        newer=address("/regressions", chosen, page - 1) if page > 1 else None,
        older=address("/regressions", chosen, page + 1) if len(found) > PAGE else None,
    )


def _row(
    regression: Regression, project: Project, first_bad: Commit, shown: list[tuple[RegressionSeries, Series]]
) -> RegressionRow:
    worst = shown[0] if shown else None
    return RegressionRow(
        regression=regression,
        project=project,
        first_bad=first_bad,
        title=_title(shown),
        amount=wording.amount(worst[0]) if worst else "",
        count=len(shown),
        hardware=", ".join(sorted({series.hardware for _, series in shown})),
    )


def _title(shown: list[tuple[RegressionSeries, Series]]) -> str:
    if not shown:
        return "no series"
    _, series = shown[0]
    first = f"{metric(series.metric)} of {series.backend} on {series.case}"
    return first if len(shown) == 1 else f"{len(shown)} series: {first}, …"


def regression(
    session: Session, regression_id: int, choices: Mapping[str, str], *, drawn: bool = True
) -> RegressionView:
    """One of them, if `drawn` with the curve of the series that the address chooses.

    Raises:
        RegressionNotFound: there is none of that number.
    """
    found = service.get(session, regression_id)
    project = session.get_one(Project, found.project_id)
    shown = repository.series_of(session, found.id)
    chosen = next((one for one in shown if str(one[1].id) == choices.get("series")), shown[0] if shown else None)
    last_good = repository.commit(session, found.last_good_id)
    first_bad = repository.commit(session, found.first_bad_id)
    assert first_bad is not None
    limits = [series.id for entry, series in shown if entry.before is None]
    before = values_repository.heads_at(session, limits, last_good.id) if last_good and limits else {}
    drawing = None
    if drawn and chosen is not None:
        ref, ids = project.default_branch, [chosen[1].id]
        rows, jobs = values_repository.history_values(session, project.id, ids, ref, SESSIONS)
        drawing = history.draw(session, [chosen[1]], rows, jobs, chosen[0].limit) if rows else None
    return RegressionView(
        regression=found,
        project=project,
        title=_title(shown),
        last_good=last_good,
        first_bad=first_bad,
        compare=f"/projects/{project.name}/compare?base={last_good.sha}&head={first_bad.sha}" if last_good else None,
        series=tuple(_series_view(found, entry, series, before.get(series.id)) for entry, series in shown),
        chosen=chosen[1].id if chosen else 0,
        drawing=drawing,
        log_command=f"git log --first-parent {last_good.sha[:12] + '..' if last_good else ''}{first_bad.sha[:12]}",
        measure_command=(
            f"gprojci submit {project.name} {first_bad.sha}" + (f" --base {last_good.sha}" if last_good else "")
        ),
        bisect_command=_bisect_command(project, last_good, first_bad, chosen[1]) if last_good and chosen else None,
        bisections=_bisections(session, project, last_good, first_bad),
        triage_command=f"gprojci regression ack {found.id} --owner NAME",
        events=tuple(repository.events_of(session, found.id)),
        ways=service.TRANSITIONS[found.state],
    )


def _bisect_command(project: Project, good: Commit, bad: Commit, series: Series) -> str | None:
    searched = series.metric.replace("_ratio_anchor", "_seconds")
    if searched not in METRICS:
        return None
    where = f"--project {project.name} --hardware {series.hardware}"
    what = f"--metric {searched} --backend {series.backend} --case {series.case}"
    return f"gprojci bisect {where} --good {good.sha[:12]} --bad {bad.sha[:12]} {what}"


def _bisections(session: Session, project: Project, good: Commit | None, bad: Commit) -> tuple[Bisection, ...]:
    if good is None:
        return ()
    found = searches.search(session, project=project.name, state=None, limit=BISECTIONS)
    return tuple(one for one in found if (one.commits[0], one.commits[-1]) == (good.sha, bad.sha))


def _series_view(
    regression: Regression, entry: RegressionSeries, series: Series, last_good: float | None
) -> RegressionSeriesView:
    """`last_good` is the value of the last good commit, of a series that has no level before but broke its limit."""
    return RegressionSeriesView(
        id=series.id,
        name=f"{metric(series.metric)} of {series.backend}",
        where=f"{series.case} on {series.hardware}",
        before=by_unit(last_good if entry.before is None else entry.before, series.unit),
        after=by_unit(entry.after, series.unit),
        amount=wording.amount(entry),
        noise="–" if entry.noise is None else f"±{entry.noise:.2%}",
        limit=by_unit(entry.limit, series.unit),
        recovered_by_sha=entry.recovered_by_sha,
        address=f"/regressions/{regression.id}?series={series.id}",
    )
