"""Every query about the outbox of reports to GitHub."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gprojci_service.models import GithubReport


def by_id(session: Session, report_id: int) -> GithubReport | None:
    return session.get(GithubReport, report_id)


def of_job(session: Session, job_id: int) -> Sequence[GithubReport]:
    return session.scalars(select(GithubReport).where(GithubReport.job_id == job_id).order_by(GithubReport.id)).all()


def pending_before(session: Session, moment: datetime) -> Sequence[int]:
    return session.scalars(
        select(GithubReport.id)
        .where(GithubReport.state == "pending", GithubReport.created_at < moment)
        .order_by(GithubReport.id)
    ).all()
