"""Decisions about a job's verdict: reads the base's policy, judges, stores the evidence, has GitHub told."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service import logs
from gprojci_service.database import send_after_commit
from gprojci_service.gate import accepted, check_page, decision, repository
from gprojci_service.gate.check_page import Case
from gprojci_service.gate.finding import Decision, Finding
from gprojci_service.github import service as github
from gprojci_service.inputs import service as inputs
from gprojci_service.jobs import repository as job_repository
from gprojci_service.models import Job, Project, Report, Verdict, now
from gprojci_service.notifications import service as notifications
from gprojci_service.pages.findings import metric_of_ceiling
from gprojci_service.projects import service as projects
from gprojci_service.queue import WATCH
from gprojci_service.regressions.limits import LimitFinding, note_limits, on_default_branch
from gprojci_service.results import repository as results
from gprojci_service.results import service as result_service
from gprojci_service.results.repository import SeriesKey
from gprojci_service.settings import Settings
from gprojci_suite.contract import ManifestError
from gprojci_suite.contract import manifest as manifests
from gprojci_suite.contract.errors import Problem
from gprojci_suite.contract.report import Report as SuiteReport

logger = logging.getLogger(__name__)


def decide_job(session: Session, settings: Settings, job_id: int) -> None:
    """Decides a job that waits for it, once; called again it does nothing."""
    logs.note(job=job_id)
    job = job_repository.locked(session, job_id)
    if job is None or job.state != "deciding":
        return
    row = results.accepted_of_job(session, job_id)
    series: dict[SeriesKey, int] = {}
    policy: dict[str, Any] = {}
    report: SuiteReport | None = None
    if row is None:
        made = decision.without_report(job.failure_kind or "lost_worker", job.detail or "")
    else:
        report = result_service.read(row)
        series = result_service.store_samples(session, job, row, report)
        inputs.record(session, row.body["inputs"])
        made, policy = _judge(session, job, row, report)
    verdict = Verdict(
        job_id=job.id,
        project_id=job.project_id,
        head_sha=job.head_sha,
        verdict=made.verdict,
        summary=made.summary,
        evidence=[finding.to_json() for finding in made.findings],
        policy=policy,
        decided_at=now(),
    )
    session.add(verdict)
    job.state, job.finished_at = "finished", now()
    session.flush()
    _note_regressions(session, job, made, series)
    project = session.get_one(Project, job.project_id)
    if on_default_branch(job, project):
        _tell_channels(session, project, job, verdict)
        send_after_commit(session, WATCH, project.id)
    _tell(session, settings, job, verdict, made, report)
    logger.info("%s: %s", made.verdict, made.summary)


def _tell(
    session: Session,
    settings: Settings,
    job: Job,
    verdict: Verdict,
    made: Decision,
    report: SuiteReport | None,
    phase: str = "decided",
) -> None:
    """Has GitHub told of a verdict, with the page of its check run."""
    project = session.get_one(Project, job.project_id)
    attempts = job_repository.attempts_of(session, job.id)
    problems = attempts[-1].manifest_problems if attempts and report is None else None
    case = Case(
        job=job,
        project=project,
        public_url=settings.public_url,
        report=report,
        read_from=verdict.policy.get("read_from", ""),
        problems=tuple(Problem(**problem) for problem in problems or ()),
        taken_from_job=results.taken_from(session, job.id) if report is not None else None,
    )
    github.conclude(session, settings, project, job, verdict, check_page.output(made, case), phase)


def decide_anew(session: Session, settings: Settings, job_id: int, occasion: str) -> None:
    """Decides a finished job once more from its stored report, and tells GitHub.

    Args:
        occasion: what GitHub's reports are filed under; another one each time.
    """
    job, verdict = job_repository.locked(session, job_id), repository.of_job(session, job_id)
    row = results.accepted_of_job(session, job_id)
    if job is None or verdict is None or row is None:
        return
    report = result_service.read(row)
    made, policy = _judge(session, job, row, report)
    verdict.verdict, verdict.summary, verdict.policy = made.verdict, made.summary, policy
    verdict.evidence, verdict.decided_at = [finding.to_json() for finding in made.findings], now()
    _tell(session, settings, job, verdict, made, report, phase=occasion)


def _tell_channels(session: Session, project: Project, job: Job, verdict: Verdict) -> None:
    """Of the default branch's verdicts people are told of those that need somebody."""
    if verdict.verdict in ("fail", "error"):
        notifications.publish(
            session,
            project,
            "gate.failed" if verdict.verdict == "fail" else "infrastructure.error",
            severity="critical" if verdict.verdict == "fail" else "warning",
            title=f"{job.head_sha[:10]} on {job.hardware}: {verdict.verdict}: {verdict.summary}",
            path=f"/jobs/{job.id}",
            facts={"job_id": job.id, "head_sha": job.head_sha, "hardware": job.hardware, "verdict": verdict.verdict},
        )


def _judge(session: Session, job: Job, row: Report, report: SuiteReport) -> tuple[Decision, dict[str, Any]]:
    """Judges by the base's manifest; where the base has none yet, by the head's, and says so.

    What somebody accepted for this commit does not decide.
    """
    source = "base" if row.manifest_base is not None else "head"
    text = row.manifest_base if row.manifest_base is not None else row.manifest_head
    try:
        manifest = manifests.parse(text or "", device=report.environment.device)
    except ManifestError as error:
        return decision.without_report("build_error", f"gprojci.toml of the {source}: {error}"), {"read_from": source}
    gated = manifest.gate.backends or tuple(manifest.backends)
    policy = {"read_from": source, "backends": list(gated), **asdict(manifest.gate)["limits"]}
    policy["informative"] = list(manifest.gate.informative)
    policy["rules"] = [asdict(rule) for rule in manifest.gate.rules]
    made = decision.decide(manifest.gate, report, gated, hardware=job.hardware)
    return accepted.apply(made, repository.overrides_of(session, job.project_id, job.head_sha)), policy


def _note_regressions(session: Session, job: Job, made: Decision, series: dict[SeriesKey, int]) -> None:
    commit = projects.record_commit(session, job.project_id, job.head_sha)
    found = [
        LimitFinding(series[_series_key(finding)], finding.verdict == "fail", finding.value, finding.limit)
        for finding in made.findings
        if _series_key(finding) in series and finding.value is not None and finding.limit is not None
    ]
    note_limits(session, job, commit, found)


def _series_key(finding: Finding) -> SeriesKey:
    """The series that a ceiling is about; ratios to the base have none of their own."""
    return finding.backend, finding.case or "", metric_of_ceiling(finding.limit_key) or ""


def search(session: Session, *, project: str | None, head_sha: str | None, limit: int) -> list[Verdict]:
    """Verdicts, newest first."""
    return list(repository.search(session, project=project, head_sha=head_sha, limit=limit))
