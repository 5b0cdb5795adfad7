"""Assembles the accuracy-against-speed picture from the samples of one session and those before it."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from gprojci_dashboards.charts.pareto import Mark, ParetoData, Step
from gprojci_service.models import Commit, Project
from gprojci_service.pages import drawings, findings, repository, values_repository
from gprojci_service.pages.formatting import clean, first_line, metric, short_sha
from gprojci_service.pages.repository import ReportFacts
from gprojci_service.pages.schemas import Scatter
from gprojci_service.pages.values_repository import ValueRow

TIMES = {"forward_backward_ratio_anchor": "forward + backward", "step_ratio_anchor": "training step"}
ERRORS = ("dq_error", "dk_error", "dv_error", "o_error")
PREFERRED_INPUT = "late-keybias"
PATH_LENGTH = 8


def pick(wanted: str | None, offered: list[str], preferred: str = "") -> str:
    """The wanted choice where it is offered, else the preferred one, else the first; empty where nothing is offered."""
    for choice in (wanted, preferred):
        if choice and choice in offered:
            return choice
    return offered[0] if offered else ""


def scatter(session: Session, project: Project, choices: Mapping[str, str], projects: list[str]) -> Scatter | None:
    """The picture for a project; `choices` (input, metric, time, …) come from the address. None without data."""
    hardwares = repository.measured_hardware(session, project.id)
    hardware = pick(choices.get("hardware"), hardwares)
    facts = None
    for ref in (project.default_branch, None):
        facts = facts or (repository.newest_report_facts(session, project.id, hardware, ref) if hardware else None)
    if facts is None:
        return None
    chosen = pick(choices.get("metric"), list(ERRORS))
    values = values_repository.report_values(session, facts.report_id, (*ERRORS, f"{chosen}_worst", *TIMES))
    times = [key for key in TIMES if any(row.series.metric == key for row in values)]
    timed = pick(choices.get("time"), times) or next(iter(TIMES))
    inputs = list(dict.fromkeys(row.series.case for row in values if row.series.metric in ERRORS))
    cases = list(dict.fromkeys(row.series.case for row in values if row.series.metric == timed))
    shown, case = pick(choices.get("input"), inputs, PREFERRED_INPUT), pick(choices.get("case"), cases)
    marks = _marks(values, facts, (chosen, shown), (timed, case))
    if not marks:
        return None
    anchor = next((entry["backend"] for entry in facts.backends if entry["role"] == "anchor"), "the anchor")
    data = ParetoData(
        marks=tuple(marks),
        anchor=anchor,
        tensor=chosen.partition("_")[0],
        ceiling=findings.limit_of_metric(repository.policy_in_force(session, project.id), chosen),
        path=tuple(_path(session, project, facts, (chosen, shown), (timed, case))),
        timed=TIMES[timed],
    )
    environment = facts.environment
    caption = (
        f"{metric(chosen)} on {shown}, against the {TIMES[timed]} time of {case} on {environment['device_name']}. "
        "Bars reach to the worst slice, the dotted line is the frontier, a faint trail the commits before."
    )
    if environment["device"] == "cpu":
        caption += " Emulated backends show a GPU kernel's rounding, not its speed."
    return Scatter(
        job_id=facts.job_id,
        drawing=drawings.pareto(data, caption),
        project=project.name,
        projects=tuple(projects),
        input=shown,
        inputs=tuple(inputs),
        metric=chosen,
        metrics=ERRORS,
        metric_words={key: metric(key) for key in ERRORS},
        time=timed,
        times=tuple(times),
        time_words=TIMES,
        case=case,
        cases=tuple(cases),
        hardware=hardware,
        hardwares=tuple(hardwares),
    )


def _marks(values: list[ValueRow], facts: ReportFacts, errors: tuple[str, str], times: tuple[str, str]) -> list[Mark]:
    """A mark per backend; of errors and times come metric and case."""
    chosen, shown = errors
    rows = [row for row in values if row.sample.revision != "base"]
    found = {(row.series.backend, row.series.metric, row.series.case): row.sample for row in rows}
    commits = {row.series.backend: row.commit for row in rows if row.sample.revision == "head"}
    marks = []
    for entry in facts.backends:
        if entry["revision"] == "base" or entry["status"] != "ok":
            continue
        name = entry["backend"]
        error, worst = found.get((name, chosen, shown)), found.get((name, f"{chosen}_worst", shown))
        time = found.get((name, *times))
        if error is None or (time is None and entry["role"] != "anchor"):
            continue
        middle = time.value if time else 1.0
        marks.append(
            Mark(
                backend=name,
                role=entry["role"],
                error=error.value,
                error_low=error.low if error.low is not None else error.value,
                error_high=error.high if error.high is not None else max(error.value, worst.value if worst else 0.0),
                time=middle,
                time_low=time.low if time and time.low is not None else middle,
                time_high=time.high if time and time.high is not None else middle,
                note="emulated" if name.startswith("emulated-") else "",
                url=f"/jobs/{facts.job_id}",
                commit=_said(commits[name]) if name in commits else "",
            )
        )
    return marks


def _said(commit: Commit) -> str:
    author = clean(commit.author_name)
    return f"{short_sha(commit.sha)} {first_line(commit.message, 70)}{f' · {author}' if author else ''}"


def _path(
    session: Session, project: Project, facts: ReportFacts, error: tuple[str, str], time: tuple[str, str]
) -> list[Step]:
    keys = [error, time]
    rows = values_repository.earlier_head_values(
        session, project.id, facts.report_id, keys, project.default_branch, PATH_LENGTH
    )
    errors = {(row.job_id, row.series.backend): row for row in rows if row.series.metric == error[0]}
    times = {(row.job_id, row.series.backend): row for row in rows if row.series.metric == time[0]}
    return [
        Step(
            backend=key[1],
            sha=row.commit.sha,
            message=first_line(row.commit.message),
            error=row.sample.value,
            time=times[key].sample.value,
            url=f"/jobs/{row.job_id}",
            author=clean(row.commit.author_name),
        )
        for key, row in errors.items()
        if key in times
    ]
