"""The outbox: which report is sent next, and when one is tried again.

A report holds the whole state of its status, check run or comment, so of the waiting reports about the same only the
newest is sent, and never two of them at once: what GitHub shows never goes back in time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from sqlalchemy.orm import Session

from gprojci_service.database import send_after_commit
from gprojci_service.github import repository
from gprojci_service.github.outgoing import Answer, Kind, Outgoing
from gprojci_service.models import GithubReport, now
from gprojci_service.queue import REPORT_TO_GITHUB
from gprojci_service.retries import next_attempt

# While a report is being sent nobody else sends it or one of the same job; longer than all its requests may take.
SENDING = timedelta(minutes=3)
GIVE_UP_AFTER = timedelta(days=7)


def enqueue(session: Session, report: GithubReport) -> None:
    """Puts a report into the outbox; it is sent after the commit."""
    session.add(report)
    session.flush()
    send_after_commit(session, REPORT_TO_GITHUB, report.id)


def take(session: Session, report_id: int) -> Outgoing | None:
    """Takes a report for sending, or None where it is not its turn: told already, overtaken, or not due yet."""
    found = repository.by_id(session, report_id)
    if found is None:
        return None
    reports = repository.locked_of_subject(session, found)
    report = next(one for one in reports if one.id == report_id)
    moment = now()
    if report.state != "pending" or report.waits(moment):
        return None
    others = [one for one in reports if one is not report]
    held = [one.next_attempt_at for one in others if one.state == "pending" and one.waits(moment)]
    if held:  # one of them is being sent, or GitHub asked to wait; afterwards it is this one's turn
        report.next_attempt_at = max(filter(None, held))
        return None
    if any(one.id > report.id for one in others) or _is_another_jobs_by_now(session, report):
        report.state, report.detail = "recorded", "not sent: a newer one took its place"
        return None
    report.next_attempt_at = moment + SENDING
    report.attempts += 1
    return Outgoing(
        kind=cast("Kind", report.kind),
        repository=repository.repository_name(session, report),
        path=report.path,
        payload=report.payload,
        check_run_id=next((one.check_run_id for one in reversed(reports) if one.check_run_id is not None), None),
        comment_id=next((one.comment_id for one in reversed(reports) if one.comment_id is not None), None),
        may_exist=report.attempts > 1 or any(one.attempts for one in others),
    )


def record_answer(session: Session, report_id: int, answer: Answer) -> None:
    """Notes what became of a report. One that met a passing fault is tried again later, for a week at most."""
    found = repository.by_id(session, report_id)
    if found is None:
        return
    reports = repository.locked_of_subject(session, found)
    report = next(one for one in reports if one.id == report_id)
    if report.state != "pending":
        return
    moment = now()
    report.detail, report.next_attempt_at = answer.detail, None
    report.check_run_id, report.comment_id = answer.check_run_id, answer.comment_id
    if answer.outcome == "again" and moment - report.created_at < GIVE_UP_AFTER:
        report.next_attempt_at = next_attempt(moment, report.attempts, answer.not_before)
    elif answer.outcome == "sent":
        report.state, report.sent_at = "sent", moment
    else:
        report.state = "recorded" if answer.outcome == "recorded" else "failed"
    for waiting in (one for one in reports if one.state == "pending" and one is not report):
        waiting.next_attempt_at = report.next_attempt_at
        if waiting.next_attempt_at is None:
            send_after_commit(session, REPORT_TO_GITHUB, waiting.id)


def _is_another_jobs_by_now(session: Session, report: GithubReport) -> bool:
    """A commit status is a commit's: what an older job still has to say of it must not hide a newer job's."""
    is_status = report.kind == "commit_status"
    return is_status and repository.has_newer_status(session, report)
