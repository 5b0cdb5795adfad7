"""Assembles a job's page: what happens while it runs, and everything its report says once there is one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.errors import JobNotFound
from gprojci_service.jobs.usage import usage
from gprojci_service.models import Attempt, Report, now
from gprojci_service.models.job import OPEN_STATES
from gprojci_service.pages import environment_changes, findings, report_choices, report_page, repository
from gprojci_service.pages.environment_changes import EnvironmentChanges
from gprojci_service.pages.formatting import clean, duration, moment, number
from gprojci_service.pages.repository import JobRow
from gprojci_service.pages.schemas import (
    AttemptView,
    Banner,
    FindingView,
    JobView,
    LogLine,
    LogView,
    ReportView,
    StepView,
    ToldView,
)
from gprojci_service.results import excerpts
from gprojci_service.results import repository as result_repository
from gprojci_service.results import service as results
from gprojci_service.settings import Settings

LIVE_LINES = 300
ALL_LINES = 3000
STEPS = ("fetch", "build", "run", "report")
_TITLES = {
    "pass": "The gate passes",
    "fail": "The gate fails",
    "neutral": "The gate cannot tell",
    "error": "The gate could not judge",
}


def job_row(session: Session, job_id: int) -> JobRow:
    """A job with what is said about it everywhere.

    Raises:
        JobNotFound: there is no such job.
    """
    row = repository.job_row(session, job_id)
    if row is None:
        raise JobNotFound(f"there is no job {job_id}")
    return row


def live(session: Session, job_id: int) -> JobView:
    """Only the part that moves: banner, steps, the end of the log.

    Raises:
        JobNotFound: there is no such job.
    """
    row = job_row(session, job_id)
    attempts = repository.attempts(session, job_id)
    return _view(session, row, attempts)


def job(session: Session, settings: Settings, job_id: int, choices: Mapping[str, str]) -> JobView:
    """The whole page; `choices` come from the address.

    Raises:
        JobNotFound: there is no such job.
    """
    found = repository.job_with_result(session, job_id)
    if found is None:
        raise JobNotFound(f"there is no job {job_id}")
    row, stored = found
    attempts = repository.attempts(session, job_id)
    shown = _result_attempt(attempts, stored)
    evidence = findings.views(row.verdict)
    shown_report, changes = _report(session, stored, row, evidence, choices) if stored else (None, None)
    return _view(
        session,
        row,
        attempts,
        findings=evidence,
        acceptable=findings.acceptable(evidence),
        report=shown_report,
        changes=changes,
        thinned_at=stored.thinned_at if stored else None,
        policy_words=findings.policy_words(row.verdict),
        told=tuple(ToldView.of(item) for item in repository.told(session, job_id)),
        builds=tuple(repository.builds(session, shown.id)) if shown else (),
        usage=usage([attempt for attempt, _ in attempts], row.job.hardware, settings, now()) if attempts else None,
        taken_from_job=result_repository.taken_from(session, job_id) if stored and stored.taken_from_id else None,
        attempts_views=tuple(AttemptView(attempt, worker) for attempt, worker in attempts),
    )


def _report(
    session: Session, stored: Report, row: JobRow, evidence: tuple[FindingView, ...], choices: Mapping[str, str]
) -> tuple[ReportView, EnvironmentChanges | None]:
    """What a report says, and what its session differs in from one of the base commit."""
    shown = report_choices.shown(excerpts.outline(session, Report, stored.id), evidence, choices)
    report = results.read_part(session, stored, shown.cut())
    limits = row.verdict.policy if row.verdict else None
    view = report_page.view(report, shown, limits, choices, row.job.merge_base_sha)
    return view, environment_changes.of_job(session, row.job, report)


def _result_attempt(attempts: list[tuple[Attempt, str]], stored: Report | None) -> Attempt | None:
    """The attempt that brought the result, else the newest."""
    for attempt, _ in attempts:
        if stored is not None and attempt.id == stored.attempt_id:
            return attempt
    return attempts[-1][0] if attempts else None


def _view(session: Session, row: JobRow, attempts: list[tuple[Attempt, str]], **parts: Any) -> JobView:
    is_live = row.job.state in OPEN_STATES
    newest = attempts[-1] if attempts else None
    views = parts.pop("attempts_views", ())
    return JobView(
        row=row,
        live=is_live,
        base_sha=row.job.merge_base_sha or row.job.base_sha,
        banner=_banner(session, row, newest),
        reasons=findings.reasons(row.verdict, at_most=4),
        steps=_steps(newest[0], row.job.state) if newest else (),
        log=_log(repository.log_text(session, newest[0].id), LIVE_LINES if is_live else ALL_LINES) if newest else None,
        attempts=views,
        **parts,
    )


def _banner(session: Session, row: JobRow, newest: tuple[Attempt, str] | None) -> Banner:
    job, verdict = row.job, row.verdict
    if verdict is not None:
        text = verdict.summary if verdict.verdict == "pass" or not findings.reasons(verdict) else ""
        return Banner(verdict.verdict, verdict.verdict, _TITLES[verdict.verdict], text)
    if job.state == "running" and newest is not None:
        return Banner(
            "running",
            "running",
            f"Measuring on {newest[1]}",
            f"attempt {newest[0].number}, started {_since(newest[0].started_at)} ago",
        )
    if job.state == "deciding":
        return Banner("running", "running", "The report is here; the gate decides")
    if job.state == "queued":
        there = any(worker.hardware == job.hardware for worker, _ in repository.workers(session))
        text = "" if there else f"No worker of the class {job.hardware} has said hello yet."
        again = f" after attempt {newest[0].number}: {clean(newest[0].detail)}" if newest and newest[0].detail else ""
        return Banner("queued", "queued", f"Waiting for a worker of the class {job.hardware}{again}", text)
    if job.state == "draft":
        return Banner("queued", "queued", "Waiting for the draft to be ready", "A draft is measured once it is ready.")
    if job.state == "awaiting_approval":
        return Banner(
            "queued",
            "queued",
            "Waiting for an approval",
            f"Nothing of this commit is built before someone has approved it: {job.detail or 'it is untrusted'}.",
        )
    if job.state == "cancelled":
        return Banner("cancelled", "cancelled", "Cancelled", job.detail or "")
    kind = (job.failure_kind or "ended without a verdict").replace("_", " ")
    return Banner("error", "error", kind[:1].upper() + kind[1:], job.detail or "")


def _since(start: datetime) -> str:
    return duration((now() - start).total_seconds())


def _steps(attempt: Attempt, job_state: str) -> tuple[StepView, ...]:
    """The steps told by the worker, then those still to come."""
    views = []
    for step in attempt.steps:
        status, started = str(step.get("status") or ""), moment(step.get("started_at"))
        if status == "running":
            words = f"for {_since(started)}" if started and attempt.state == "running" else "interrupted"
            views.append(
                StepView(
                    step["name"],
                    "running" if attempt.state == "running" else "fail",
                    "running" if attempt.state == "running" else "fail",
                    words,
                )
            )
        else:
            kind, icon = {"ok": ("pass", "pass"), "skipped": ("idle", "neutral")}.get(status, ("fail", "fail"))
            took = duration(step.get("seconds"))
            words = took if kind == "pass" else status if kind == "idle" else f"{status.replace('_', ' ')}, {took}"
            views.append(StepView(step["name"], kind, icon, words))
    if attempt.state == "running" and job_state == "running":
        told = {view.name for view in views}
        if attempt.step and attempt.step not in told:
            views.append(StepView(attempt.step, "running", "running", "under way"))
            told.add(attempt.step)
        if told <= set(STEPS):
            views += [StepView(name, "idle", "queued", "to come") for name in STEPS if name not in told]
    return tuple(views)


def _log(text: str, limit: int) -> LogView | None:
    """The last lines of a log, numbered from its beginning."""
    lines = clean(text).rstrip("\n").split("\n") if text else []
    if not lines:
        return None
    first = max(0, len(lines) - limit)
    shown = tuple(LogLine(first + index + 1, line) for index, line in enumerate(lines[first:]))
    words = (
        f"{number(len(lines))} {'line' if len(lines) == 1 else 'lines'}"
        if first == 0
        else f"last {number(limit)} of {number(len(lines))} lines"
    )
    return LogView(shown, words)
