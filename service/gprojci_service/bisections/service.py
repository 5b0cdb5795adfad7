"""Decisions about bisections: started, moved on by each job that ends, concluded, cancelled.

It is the service that searches: a search outlives the terminal that asked for it.
"""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.bisections import evidence, repository, search
from gprojci_service.bisections.schemas import BisectionCreate, BisectionOut, FindingOut
from gprojci_service.bisections.search import Conclude, Finding, Measure
from gprojci_service.database import send_after_commit
from gprojci_service.errors import Conflict, InvalidRequest, NotFound, ProjectArchived
from gprojci_service.gate.decision import MACHINERY
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Bisection, Job, Project, now
from gprojci_service.models.job import OPEN_STATES
from gprojci_service.projects import service as projects
from gprojci_service.queue import ADVANCE
from gprojci_service.results import repository as results
from gprojci_service.results import service as result_service
from gprojci_service.results.service import ReportUnreadable
from gprojci_service.settings import Settings
from gprojci_suite.contract.report import Report

SHOWN_REMAINING = 100


class BisectionNotFound(NotFound):
    """No bisection of that number."""


class BisectionNotRunning(Conflict):
    """The bisection has ended already."""


def get(session: Session, bisection_id: int) -> Bisection:
    """Raises:
    BisectionNotFound: there is no bisection of that number.
    """
    found = repository.by_id(session, bisection_id)
    if found is None:
        raise BisectionNotFound(f"no bisection {bisection_id}; `gprojci bisect list` shows them")
    return found


def start(session: Session, settings: Settings, body: BisectionCreate, created_by: str) -> Bisection:
    """Begins a search; its first job measures the bad commit against the good one.

    Raises:
        ProjectNotFound, ProjectArchived: of the project.
        InvalidRequest: the metric, the hardware class or the range is wrong.
    """
    project = projects.get(session, body.project)
    if project.archived_at is not None:
        raise ProjectArchived(f"project {project.name} is archived since its repository is archived or deleted")
    if body.metric not in evidence.METRICS:
        raise InvalidRequest(f"metric {body.metric!r} cannot be searched for; use one of {', '.join(evidence.METRICS)}")
    commits = [body.good, *body.commits]
    if len(set(commits)) != len(commits):
        raise InvalidRequest("commits: a commit is listed twice; send git rev-list --first-parent --reverse GOOD..BAD")
    made = Bisection(
        project_id=project.id,
        hardware=_hardware(settings, project, body.hardware),
        metric=body.metric,
        backend=body.backend,
        case=body.case,
        commits=commits,
        threshold=body.threshold,
        # The error of the same code does not get surer with more timed pairs.
        max_effort=body.max_effort if body.metric in evidence.TIME_METRICS else 1,
        findings=[],
        created_by=created_by,
    )
    session.add(made)
    session.flush()
    advance(session, settings, made.id)
    return made


def _hardware(settings: Settings, project: Project, named: str | None) -> str:
    classes = project.hardware or settings.default_hardware
    if named is None and len(classes) > 1:
        raise InvalidRequest(f"hardware: {project.name} is measured on {', '.join(classes)}; name one of them")
    if named is not None and named not in classes:
        raise InvalidRequest(f"hardware: {project.name} is not measured on {named!r}; use one of {', '.join(classes)}")
    return named or str(classes[0])


def cancel(session: Session, bisection_id: int) -> Bisection:
    """Ends a search and the job that was made for it.

    Raises:
        BisectionNotFound: there is none.
        BisectionNotRunning: it has ended.
    """
    get(session, bisection_id)
    bisection = repository.locked(session, bisection_id)
    assert bisection is not None
    if bisection.state != "running":
        raise BisectionNotRunning(f"bisection {bisection_id} is {bisection.state} already")
    job = jobs.get(session, bisection.job_id) if bisection.job_id is not None else None
    _end(bisection, "cancelled", "cancelled by hand")
    if job is not None and job.kind == "bisect" and job.state in OPEN_STATES:
        jobs.cancel(session, job.id, f"bisection {bisection_id} was cancelled")
    return bisection


def wake(session: Session, job_id: int) -> None:
    """A job has ended: has the searches that wait for it go on."""
    for bisection_id in repository.waiting_for(session, job_id):
        send_after_commit(session, ADVANCE, bisection_id)


def advance(session: Session, settings: Settings, bisection_id: int) -> None:
    """Takes in what the job it waited for says, and asks for what is needed next; safe to call at any time."""
    bisection = repository.locked(session, bisection_id)
    while bisection is not None and bisection.state == "running":
        if bisection.job_id is not None:
            job = jobs.get(session, bisection.job_id)
            if job.state in OPEN_STATES:
                return
            _take_in(session, bisection, job)
        if bisection.state == "running":
            _go_on(session, settings, bisection)


def _take_in(session: Session, bisection: Bisection, job: Job) -> None:
    """Adds what an ended job says of its head to the findings."""
    position = bisection.commits.index(job.head_sha)
    about: dict[str, Any] = {
        "position": position,
        "job_id": job.id,
        "effort": job.effort,
        "reused": job.kind != "bisect",
    }
    bisection.job_id = None
    if job.state == "cancelled" and job.kind != "bisect":
        return  # it was made for something else: one of the search's own takes its place
    kind = job.failure_kind or job.state
    if kind in MACHINERY:
        _end(bisection, "failed", f"job {job.id}: {kind.replace('_', ' ')}: {job.detail or 'no detail'}")
        return
    row = results.accepted_of_job(session, job.id)
    if row is None:
        reason = f"{kind.replace('_', ' ')}: {(job.detail or '').strip() or 'no detail'}"
        _add(bisection, Finding(word="skipped", reason=reason.splitlines()[0][:300], **about))
        return
    try:
        report = result_service.read(row)
    except ReportUnreadable as error:
        _add(bisection, Finding(word="skipped", reason=error.detail[:300], **about))
        return
    finding, trouble = _judged(bisection, report, about)
    if finding is None:
        _end(bisection, "failed", f"job {job.id}: {trouble}")
    else:
        _add(bisection, finding)


def _judged(bisection: Bisection, report: Report, about: dict[str, Any]) -> tuple[Finding | None, str]:
    """The finding of a report; without one, why the search cannot go on."""
    found = evidence.observations(report, bisection.metric)
    chosen = evidence.pick(found, bisection.backend, bisection.case)
    if chosen is None:
        return _unmeasured(bisection, report, about, found)
    first = about["position"] == len(bisection.commits) - 1
    threshold = bisection.threshold or evidence.first_threshold(bisection.metric)
    word, reason = evidence.word(chosen, threshold), ""
    keys = {entry.revision: entry.build_key for entry in report.subjects if entry.backend == chosen.backend}
    known = {"good": keys.get("base"), "bad": _key_of(bisection, "bad")}
    if word == "unsure":
        same = next((name for name, key in known.items() if key is not None and key == keys.get("head")), None)
        if same is not None:
            word, reason = same, f"its build is that of a {same} commit"  # type: ignore[assignment]
    if first and word == "bad":
        bisection.backend, bisection.case = chosen.backend, chosen.case
        bisection.threshold = bisection.threshold or evidence.halfway(chosen.ratio)
    finite = math.isfinite(chosen.ratio)
    finding = Finding(
        word=word,
        ratio=chosen.ratio if finite else None,
        low=chosen.low if finite else None,
        high=chosen.high if finite else None,
        reason=reason or ("" if finite else "NaN, Inf, or an error where the good commit has none"),
        build_key=keys.get("head"),
        **about,
    )
    return finding, ""


def _key_of(bisection: Bisection, word: str) -> str | None:
    return next((entry["build_key"] for entry in bisection.findings if entry["word"] == word), None)


def _unmeasured(
    bisection: Bisection, report: Report, about: dict[str, Any], found: list[evidence.Observation]
) -> tuple[Finding | None, str]:
    """The head has no value: it is skipped for a fault of its own, and the search fails for any other cause."""
    named = [entry for entry in report.backends if bisection.backend in (None, entry.backend)]
    heads = [entry for entry in named if entry.revision == "head" and entry.role == "subject"]
    broken = [entry for entry in heads if entry.status != "ok"]
    if broken or not heads:
        words = f"{broken[0].backend} {broken[0].status}: {broken[0].detail}" if broken else "has no such backend"
        return Finding(word="skipped", reason=words.replace("_", " ")[:300], **about), ""
    if not any(entry.revision == "base" and entry.status == "ok" for entry in named):
        return None, f"the good commit {bisection.commits[0][:10]} cannot be built or measured; choose another"
    offered = ", ".join(sorted({f"{item.backend} on {item.case}" for item in found})[:8]) or "nothing"
    return None, f"{bisection.metric} was not measured as asked for; the report has it of: {offered}"


def _go_on(session: Session, settings: Settings, bisection: Bisection) -> None:
    step = search.next_step(len(bisection.commits), findings(bisection), bisection.max_effort)
    if isinstance(step, Measure):
        _ask(session, settings, bisection, step)
    elif isinstance(step, Conclude):
        _conclude(bisection, step)
    else:
        words = {
            "good": f"is no worse than {bisection.commits[0][:10]}",
            "unsure": f"cannot be told apart from {bisection.commits[0][:10]}, with {step.finding.effort} × the pairs",
        }.get(step.finding.word)
        if words is None:
            _end(bisection, "failed", f"the bad commit cannot be measured: {step.finding.reason}")
        else:
            _end(bisection, "not_worse", f"{bisection.commits[-1][:10]} {words}: there is nothing to find")


def _ask(session: Session, settings: Settings, bisection: Bisection, step: Measure) -> None:
    """Has the search wait for a job that answers: one that is there already, else a new one."""
    base, head = bisection.commits[0], bisection.commits[step.position]
    known = repository.answering_job(session, bisection, head, base, step.effort)
    known = known or repository.unbuildable_job(session, bisection, head)
    if known is not None:
        bisection.job_id = known.id
        return
    project = session.get_one(Project, bisection.project_id)
    try:
        created = jobs.create(
            session,
            settings,
            project,
            kind="bisect",
            head_sha=head,
            base_sha=base,
            ref=None,
            hardware=[bisection.hardware],
            effort=step.effort,
            occasion=f"{bisection.id}x{step.effort}",
        )
    except ProjectArchived as error:
        _end(bisection, "failed", error.detail)
        return
    (bisection.job_id,) = created


def _conclude(bisection: Bisection, step: Conclude) -> None:
    suspects = bisection.commits[step.first : step.last + 1]
    if len(suspects) == 1:
        _end(bisection, "found", f"{suspects[0]} is the first commit whose {bisection.metric} is worse")
        return
    undecided = {entry.word for entry in findings(bisection) if step.first <= entry.position < step.last}
    why = " and ".join(
        words for word, words in (("skipped", "cannot be measured"), ("unsure", "stay unsure")) if word in undecided
    )
    _end(
        bisection,
        "found",
        f"the first commit whose {bisection.metric} is worse is one of {len(suspects)}, "
        f"{suspects[0][:10]} to {suspects[-1][:10]}: those before the last {why}",
    )


def findings(bisection: Bisection) -> list[Finding]:
    """What was measured so far, in that order."""
    return [Finding(**entry) for entry in bisection.findings]


def _add(bisection: Bisection, finding: Finding) -> None:
    bisection.findings = [*bisection.findings, finding.to_json()]


def _end(bisection: Bisection, state: str, detail: str) -> None:
    bisection.state, bisection.detail, bisection.finished_at, bisection.job_id = state, detail, now(), None


def view(session: Session, settings: Settings, bisection: Bisection) -> BisectionOut:
    """A bisection as the API shows it."""
    known = findings(bisection)
    good, bad = search.bracket(len(bisection.commits), known)
    remaining = bisection.commits[good + 1 : bad + 1]
    return BisectionOut(
        id=bisection.id,
        project=session.get_one(Project, bisection.project_id).name,
        hardware=bisection.hardware,
        metric=bisection.metric,
        backend=bisection.backend,
        case=bisection.case,
        threshold=bisection.threshold if math.isfinite(bisection.threshold or 0) else None,
        state=bisection.state,
        detail=bisection.detail,
        good=bisection.commits[0],
        bad=bisection.commits[-1],
        commits=len(bisection.commits) - 1,
        remaining=remaining[:SHOWN_REMAINING],
        remaining_count=len(remaining),
        first_bad=remaining[0] if bisection.state == "found" and len(remaining) == 1 else None,
        findings=[_finding_out(settings, bisection, finding) for finding in known],
        job_id=bisection.job_id,
        created_by=bisection.created_by,
        created_at=bisection.created_at,
        finished_at=bisection.finished_at,
    )


def _finding_out(settings: Settings, bisection: Bisection, finding: Finding) -> FindingOut:
    known = finding.to_json()
    known.pop("build_key")
    url = f"{settings.public_url}/jobs/{finding.job_id}" if finding.job_id is not None else None
    return FindingOut(sha=bisection.commits[finding.position], job_url=url, **known)
