"""Decisions about reports: which one counts, and what series and samples are made of it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service import logs
from gprojci_service.database import send_after_commit
from gprojci_service.errors import AttemptNotFound, Conflict, InvalidRequest, LeaseLost, ReportNotFound
from gprojci_service.gate import manifest_faults
from gprojci_service.jobs import repository as job_repository
from gprojci_service.jobs import service as jobs
from gprojci_service.jobs import usage
from gprojci_service.models import Attempt, Build, Job, Report, now
from gprojci_service.projects import service as projects
from gprojci_service.queue import DECIDE
from gprojci_service.results import excerpts, repository
from gprojci_service.results.excerpts import Cut, Wanted
from gprojci_service.results.schemas import AttemptReport, Received
from gprojci_service.settings import Settings
from gprojci_suite.contract import ContractError, codec
from gprojci_suite.contract.report import Report as SuiteReport
from gprojci_suite.contract.report import Slice

logger = logging.getLogger(__name__)

ALWAYS_MEASURED = ("manual", "schedule")


class ReportInvalid(InvalidRequest):
    """The report breaks the contract of the suite; nothing of it was stored."""


class ReportUnreadable(Conflict):
    """A stored report is of a format that this version does not read."""


def receive(session: Session, settings: Settings, attempt_id: int, body: AttemptReport) -> Received:
    """Takes an attempt's terminal message, once. One of an attempt that lost its lease is kept as evidence only.

    Raises:
        AttemptNotFound: there is no such attempt.
        LeaseLost: the fencing token is another's.
        ReportInvalid: the report breaks the contract; the message names the field.
    """
    attempt = job_repository.attempt(session, attempt_id)
    if attempt is None:
        raise AttemptNotFound(f"no attempt {attempt_id}")
    if attempt.fencing_token != body.fencing_token:
        raise LeaseLost(f"attempt {attempt_id} has another fencing token")
    logs.note(job=attempt.job_id, attempt=attempt.number)
    taken = _taken_over(session, attempt, body)
    report = _validated(body) if taken is None else read(taken)
    if attempt.state in ("reported", "failed"):
        return Received(accepted=True, reason="was acknowledged before")
    if attempt.state != "running":
        if report is not None and repository.of_attempt(session, attempt_id) is None:
            session.add(_row(attempt, body, report, taken, accepted=False))
        return Received(
            accepted=False, reason=f"the attempt is {attempt.state}: {attempt.detail}; kept as evidence only"
        )

    attempt.finished_at, attempt.step = now(), None
    attempt.steps = [step.model_dump(mode="json") for step in body.steps] or attempt.steps
    session.add_all(Build(attempt_id=attempt.id, **build.model_dump()) for build in body.builds)
    if report is None:
        attempt.state, attempt.failure_kind, attempt.detail = "failed", body.status, body.detail
        if body.status == "build_error":
            attempt.manifest_problems = manifest_faults.find(session, body.manifests.head, body.detail)
        jobs.fail_or_retry(session, settings, attempt, body.status, body.detail)
        logger.info("%s: %s", body.status, body.detail[:200])
        return Received(accepted=True, reason=f"noted: {body.status}")
    if taken is None and report.working_seconds is not None:
        attempt.steps = usage.note_working(attempt.steps, report.working_seconds)
    job = session.get_one(Job, attempt.job_id)
    attempt.state, job.state = "reported", "deciding"
    session.add(_row(attempt, body, report, taken, accepted=True))
    send_after_commit(session, DECIDE, job.id)
    logger.info("report stored")
    return Received(accepted=True, reason="stored")


def known(session: Session, settings: Settings, attempt_id: int, fencing_token: int, fingerprint: str) -> Report | None:
    """The newest result of the very same measurement in the same project, if it is not too old to be taken over.

    What somebody asked for by hand, a rerun and the runs of a timetable are measured in any case: they are asked for
    because the same code may behave otherwise today.

    Raises:
        LeaseLost, AttemptNotFound: the attempt is no longer the caller's.
    """
    attempt = jobs.held_attempt(session, attempt_id, fencing_token)
    job = session.get_one(Job, attempt.job_id)
    if job.kind in ALWAYS_MEASURED or job.retry_of_id is not None:
        return None
    since = now() - timedelta(days=settings.reuse_days)
    return repository.same_measurement(session, job.project_id, job.hardware, fingerprint, since)


def _taken_over(session: Session, attempt: Attempt, body: AttemptReport) -> Report | None:
    """The report that an attempt takes over.

    Raises:
        ReportInvalid: it brings another one as well, or there is none of that number and fingerprint in its project.
    """
    if body.same_as is None:
        return None
    job = session.get_one(Job, attempt.job_id)
    found = repository.accepted_of_project(session, job.project_id, job.hardware, body.same_as)
    if found is None or body.fingerprint is None or found.fingerprint != body.fingerprint:
        raise ReportInvalid(f"report {body.same_as} is not one of this very measurement; measure instead")
    if body.status != "measured" or body.report is not None:
        raise ReportInvalid("what takes a report over has status 'measured' and brings no report of its own")
    return found


def _validated(body: AttemptReport) -> SuiteReport | None:
    if (body.status == "measured") != (body.report is not None):
        raise ReportInvalid("status 'measured' needs a report, and every other status must come without one")
    try:
        return None if body.report is None else SuiteReport.from_json(body.report)
    except ContractError as error:
        raise ReportInvalid(f"report: {error}") from error


def _row(attempt: Attempt, body: AttemptReport, report: SuiteReport, taken: Report | None, *, accepted: bool) -> Report:
    return Report(
        job_id=attempt.job_id,
        attempt_id=attempt.id,
        fencing_token=attempt.fencing_token,
        accepted=accepted,
        schema_version=report.schema_version,
        fingerprint=body.fingerprint,
        taken_from_id=None if taken is None else taken.taken_from_id or taken.id,
        body=body.report if taken is None else taken.body,
        manifest_head=body.manifests.head,
        manifest_base=body.manifests.base,
    )


def read(row: Report) -> SuiteReport:
    """The suite's report in a stored row.

    Raises:
        ReportUnreadable: it was written by a ruler whose format this service does not know.
    """
    return _decoded(row, row.body)


def read_part(session: Session, row: Report, cut: Cut) -> SuiteReport:
    """The suite's report in a stored row, with those entries of its long lists that `cut` keeps.

    Raises:
        ReportUnreadable: what was read is in a format that this service does not know.
    """
    return _decoded(row, excerpts.excerpt(session, Report, row.id, cut))


def slices(session: Session, row: Report, wanted: Wanted) -> list[Slice]:
    """The wanted slices of the suite's report in a stored row, of which `read_part` has read another part."""
    return [codec.decode(Slice, item) for item in excerpts.slices(session, Report, row.id, wanted)]


def _decoded(row: Report, body: dict[str, Any]) -> SuiteReport:
    try:
        return SuiteReport.from_json(body)
    except ContractError as error:
        raise ReportUnreadable(
            f"the report of job {row.job_id} has a format that this version does not read ({error}); "
            f"it is kept whole at /api/v1/jobs/{row.job_id}/report, and a rerun of the job measures anew"
        ) from error


def accepted_report(session: Session, job_id: int) -> Report:
    """The job's result.

    Raises:
        ReportNotFound: it has none (yet).
    """
    report = repository.accepted_of_job(session, job_id)
    if report is None:
        raise ReportNotFound(f"job {job_id} has no report")
    return report


@dataclass(frozen=True)
class Point:
    """One value on its way into a series."""

    backend: str
    revision: str
    case: str
    metric: str
    unit: str
    value: float
    low: float | None
    high: float | None
    count: int

    @property
    def key(self) -> repository.SeriesKey:
        """Of its series, within a project, a hardware class and a ruler."""
        return self.backend, self.case, self.metric

    @property
    def measured(self) -> tuple[str, float, float | None, float | None, int]:
        """What its sample holds, in the order of the columns."""
        return self.revision, self.value, self.low, self.high, self.count


def points(report: SuiteReport) -> Iterator[Point]:
    """The values of a report that are followed over commits: medians, worst slices, responses of dQ to a shift of the
    keys, times and peak memory of attention and of training steps, ratios to the anchor."""
    for line in report.accuracy.summary if report.accuracy else ():
        count = line.slices - line.vanishing
        yield Point(
            line.backend, line.revision, line.input, f"{line.tensor}_error", "fraction", line.median, None, None, count
        )
        yield Point(
            line.backend,
            line.revision,
            line.input,
            f"{line.tensor}_error_worst",
            "fraction",
            line.worst,
            None,
            None,
            count,
        )
    for moved in report.symmetry.summary if report.symmetry else ():
        if moved.response == "dq_key_shift":
            where, count = (moved.backend, moved.revision, moved.case), moved.slices - moved.vanishing
            yield Point(*where, "dq_symmetry", "fraction", moved.median, None, None, count)
    for timing in report.throughput.measurements if report.throughput else ():
        yield Point(
            timing.backend,
            timing.revision,
            timing.case,
            f"{timing.pass_}_seconds",
            "seconds",
            timing.median_seconds,
            None,
            None,
            len(timing.seconds),
        )
    for trained in report.step.measurements if report.step else ():
        yield Point(
            trained.backend,
            trained.revision,
            trained.model,
            "step_seconds",
            "seconds",
            trained.median_seconds,
            None,
            None,
            len(trained.seconds),
        )
    for (name, revision, case), peak in report.peak_memory().items():
        yield Point(name, revision, case, "peak_memory", "bytes", float(peak), None, None, 1)
    anchors = {backend.backend for backend in report.backends if backend.role == "anchor"}
    timed = (report.throughput, report.step)
    for compared in (entry for section in timed if section for entry in section.comparisons):
        if compared.against_backend in anchors and compared.against_revision == "ruler" and not compared.control:
            yield Point(
                compared.backend,
                compared.revision,
                compared.case,
                f"{compared.pass_}_ratio_anchor",
                "ratio",
                compared.ratio,
                compared.low,
                compared.high,
                compared.pairs,
            )


def store_samples(session: Session, job: Job, row: Report, report: SuiteReport) -> dict[repository.SeriesKey, int]:
    """Adds the report's values to their series, once; returns the series' numbers by (backend, case, metric)."""
    about = (job.project_id, report.environment.hardware, report.ruler.revision)
    series = repository.series_ids(session, *about)
    if repository.has_samples(session, row.id):
        return series
    if row.taken_from_id is not None and len(set(repository.build_keys(session, row.attempt_id).values())) == 1:
        return series  # the commit leaves the kernel as it is: no point of its own, for nothing was measured at it
    commits = {
        "head": projects.record_commit(session, job.project_id, job.head_sha),
        "base": projects.record_commit(session, job.project_id, job.merge_base_sha) if job.merge_base_sha else None,
    }
    moment, found = now(), [point for point in points(report) if math.isfinite(point.value)]
    units = {point.key: point.unit for point in found if point.key not in series}
    if units:
        repository.add_series(session, [_series(about, key, unit) for key, unit in units.items()])
        series = repository.series_ids(session, *about)
    session.flush()
    measured = ((point, commits["base" if point.revision == "base" else "head"]) for point in found)
    repository.add_samples(
        session,
        (
            (
                series[point.key],
                row.id,
                commit.id,
                point.revision,
                point.value,
                point.low,
                point.high,
                point.count,
                moment,
            )
            for point, commit in measured
            if commit is not None
        ),
    )
    return series


def _series(about: tuple[int, str, str], key: repository.SeriesKey, unit: str) -> dict[str, object]:
    named = dict(zip(("project_id", "hardware", "ruler_revision"), about, strict=True))
    return {**named, **dict(zip(("backend", "case", "metric"), key, strict=True)), "unit": unit}
