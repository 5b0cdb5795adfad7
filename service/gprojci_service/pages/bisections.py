"""Assembles the list of searches for a first bad commit, and the page of one with its evidence."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from sqlalchemy.orm import Session

from gprojci_dashboards.charts.bisection import BisectionData, Measured
from gprojci_service.bisections import search, service
from gprojci_service.bisections.search import Finding
from gprojci_service.models import Bisection, Commit, Project
from gprojci_service.models.bisection import BISECTION_STATES
from gprojci_service.pages import drawings
from gprojci_service.pages import repository as pages
from gprojci_service.pages.addresses import address
from gprojci_service.pages.bisection_views import BisectionRow, BisectionsView, BisectionView, MeasuredRow
from gprojci_service.pages.formatting import DASH, clean, first_line, metric, ratio, short_sha, spelled
from gprojci_service.pages.scatter import pick
from gprojci_service.pages.schemas import Drawing
from gprojci_service.projects import repository as project_repository

PAGE = 25
SHOWN_REMAINING = 50
_SHA = re.compile(r"\b([0-9a-f]{10})[0-9a-f]{30}\b")
_STATES = {"": "all", **{state: state.replace("_", " ") for state in BISECTION_STATES}}
_BANNERS = {
    "running": ("running", "Searching"),
    "found": ("pass", "Found"),
    "not_worse": ("neutral", "Nothing to find"),
    "failed": ("error", "The search could not go on"),
    "cancelled": ("cancelled", "Cancelled"),
}


def bisections(session: Session, choices: Mapping[str, str], page: int) -> BisectionsView:
    """The list, by what the address chooses: state, project."""
    state = pick(choices.get("state"), list(_STATES))
    names = [project.name for project in pages.projects(session)]
    project = pick(choices.get("project"), ["", *names])
    chosen = {"state": state, "project": project}
    found = pages.bisections(session, project, state, (page - 1) * PAGE, PAGE + 1)
    return BisectionsView(
        rows=tuple(BisectionRow(one, owner, _title(one), _progress(one)) for one, owner in found[:PAGE]),
        state=state,
        states=tuple(_STATES.items()),
        project=project,
        projects=("", *names),
        project_words={"": "all projects"} | {name: name for name in names},
        address=lambda **other: address("/bisections", chosen | other),
        newer=address("/bisections", chosen, page - 1) if page > 1 else None,
        older=address("/bisections", chosen, page + 1) if len(found) > PAGE else None,
    )


def _title(bisection: Bisection) -> str:
    """'dQ error, median of gproj on late-keybias'; backend and case are known once the bad commit was measured."""
    parts = [metric(bisection.metric)]
    parts += [f"of {clean(bisection.backend)}"] if bisection.backend else []
    parts += [f"on {clean(bisection.case)}"] if bisection.case else []
    return " ".join(parts)


def _progress(bisection: Bisection) -> str:
    if bisection.detail:
        return _SHA.sub(r"\1", spelled(clean(bisection.detail)))
    good, bad = search.bracket(len(bisection.commits), service.findings(bisection))
    count = len(bisection.findings)
    return f"{_commits(bad - good)} remain after {count} measurement{'' if count == 1 else 's'}"


def _commits(count: int) -> str:
    return "1 commit" if count == 1 else f"{count:,} commits"


def bisection(session: Session, bisection_id: int) -> BisectionView:
    """One search with what was measured of each commit.

    Raises:
        BisectionNotFound: there is none of that number.
    """
    one = service.get(session, bisection_id)
    project = session.get_one(Project, one.project_id)
    findings = service.findings(one)
    good, bad = search.bracket(len(one.commits), findings)
    remaining = one.commits[good + 1 : bad + 1]
    first_bad = remaining[0] if one.state == "found" and len(remaining) == 1 else None
    measured = [one.commits[finding.position] for finding in findings]
    commits = project_repository.commits(session, project.id, {*measured, *remaining[:1]})
    at_fault = next((each for each in reversed(findings) if first_bad and each.position == bad), None)
    kind, words = _BANNERS[one.state]
    before = one.commits[bad - 1] if first_bad else None
    return BisectionView(
        bisection=one,
        project=project,
        title=_title(one),
        banner=(kind, words),
        first_bad=first_bad,
        first_bad_commit=commits.get(first_bad) if first_bad else None,
        amount=_reading(at_fault)[0] if at_fault else "",
        compare=f"/projects/{project.name}/compare?base={one.commits[0]}&head={first_bad}" if first_bad else None,
        remaining=tuple(remaining[:SHOWN_REMAINING]),
        remaining_count=len(remaining),
        searched=len(one.commits) - 1,
        rows=tuple(
            _row(one, place, finding, commits.get(sha))
            for place, (finding, sha) in enumerate(zip(findings, measured, strict=True), 1)
        ),
        drawing=_drawing(one, findings, good, bad) if findings else None,
        measure_command=shlex.join(["gprojci", "submit", project.name, first_bad, "--base", before])
        if first_bad and before
        else None,
        again_command=_again(one, project),
        regressions=tuple(pages.regressions_between(session, project.id, one.commits[0], one.commits[-1])),
    )


def moved(session: Session, bisection_id: int, known: int) -> bool:
    """Whether a search has ended or measured more than `known` times.

    Raises:
        BisectionNotFound: there is none of that number.
    """
    one = service.get(session, bisection_id)
    return one.state != "running" or len(one.findings) != known


def _again(one: Bisection, project: Project) -> str:
    command = ["gprojci", "bisect", "--project", project.name, "--hardware", one.hardware, "--metric", one.metric]
    command += ["--good", one.commits[0][:12], "--bad", one.commits[-1][:12]]
    for option, value in (("--backend", one.backend), ("--case", one.case)):
        command += [option, value] if value else []
    return shlex.join(command)


def _reading(finding: Finding) -> tuple[str, str]:
    """The ratio to the good commit and its interval."""
    if finding.ratio is None:
        return (DASH if finding.word == "skipped" else "not finite"), ""
    known = finding.low is not None and finding.high is not None and finding.low != finding.high
    return ratio(finding.ratio), f"{ratio(finding.low)} … {ratio(finding.high)}" if known else ""


def _row(one: Bisection, order: int, finding: Finding, commit: Commit | None) -> MeasuredRow:
    amount, interval = _reading(finding)
    return MeasuredRow(
        order=order,
        sha=one.commits[finding.position],
        message=first_line(commit.message if commit else None, 60),
        place=f"{finding.position} of {len(one.commits) - 1}",
        word=finding.word,
        ratio=amount,
        interval=interval,
        effort=finding.effort,
        job_id=finding.job_id,
        reused=finding.reused,
        reason=clean(finding.reason),
    )


def _drawing(one: Bisection, findings: list[Finding], good: int, bad: int) -> Drawing:
    data = BisectionData(
        metric=metric(one.metric),
        commits=len(one.commits),
        measured=tuple(
            Measured(
                finding.position,
                one.commits[finding.position],
                finding.word,
                place,
                finding.ratio,
                finding.low,
                finding.high,
                clean(finding.reason),
                f"/jobs/{finding.job_id}" if finding.job_id is not None else "",
            )
            for place, finding in enumerate(findings, 1)
        ),
        good=good,
        bad=bad,
        threshold=one.threshold,
    )
    caption = (
        f"{metric(one.metric)} of each measured commit over that of the good commit {short_sha(one.commits[0])}, "
        "numbered in the order of measuring. The band holds the commits of which one is the first bad one."
    )
    return drawings.bisection(data, caption)
