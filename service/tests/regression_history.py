"""A project whose default branch is measured commit after commit, for the tests of regressions."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from gprojci_service.database import Database
from gprojci_service.models import (
    Attempt,
    Commit,
    Job,
    NotificationChannel,
    Project,
    Regression,
    Report,
    Sample,
    Series,
    SeriesStep,
    Worker,
    now,
)
from gprojci_service.regressions import kept_steps, repository, watch


class History:
    """A project whose default branch is measured commit after commit."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.generator = random.Random(1)
        self.start = now() - timedelta(days=100)
        self.count = 0
        with database.session(writes=True) as session:
            project = Project(name="o/r", clone_url="https://github.com/o/r.git")
            worker = Worker(name="w", hardware="cpu", device="cpu", device_name="a CPU", boot_id="b", environment={})
            session.add_all([project, worker])
            session.flush()
            channel = {"kind": "webhook", "url": "https://example.com", "secret": "whsec_", "minimum_severity": "info"}
            session.add(NotificationChannel(project_id=project.id, name="all", events=None, **channel))
            self.project_id, self.worker_id = project.id, worker.id
            self.series = {}
            for metric, unit in (
                ("dq_error", "fraction"),
                ("forward_ratio_anchor", "ratio"),
                ("forward_seconds", "seconds"),
                ("peak_memory", "bytes"),
            ):
                row = Series(project_id=project.id, backend="gproj", case="late-keybias", metric=metric, unit=unit)
                row.hardware, row.ruler_revision = "cpu", "f" * 40
                session.add(row)
                session.flush()
                self.series[metric] = row.id

    def measure(self, commits: int = 1, *, ref: str = "main", hours: float | None = None, **levels: float) -> list[str]:
        """Adds measured commits; `hours` puts them between others."""
        shas = []
        with self.database.session(writes=True) as session:
            for _ in range(commits):
                self.count += 1
                sha = f"{self.count:040x}"
                at = self.start + timedelta(hours=self.count if hours is None else hours)
                commit = Commit(project_id=self.project_id, sha=sha, authored_at=at, parents=[])
                job = Job(project_id=self.project_id, kind="push", dedup_key=sha, head_sha=sha, hardware="cpu")
                job.ref, job.state = ref, "finished"
                session.add_all([commit, job])
                session.flush()
                attempt = Attempt(
                    job_id=job.id, worker_id=self.worker_id, number=1, claim_id=sha, boot_id="b", steps=[]
                )
                attempt.lease_expires_at = attempt.deadline_at = now()
                session.add(attempt)
                session.flush()
                report = Report(job_id=job.id, attempt_id=attempt.id, fencing_token=1, accepted=True, schema_version=1)
                report.body = {}
                session.add(report)
                session.flush()
                for metric, level in levels.items():
                    value = level * (1 + self.generator.gauss(0, 0.001))
                    sample = Sample(series_id=self.series[metric], report_id=report.id, commit_id=commit.id, count=9)
                    sample.revision, sample.value = "head", value
                    session.add(sample)
                shas.append(sha)
        return shas

    def look(self) -> None:
        with self.database.session(writes=True) as session:
            watch.look(session, self.project_id)
        kept_steps.keep(self.database, self.project_id)

    def all(self, model: Any) -> list[Any]:
        with self.database.session(writes=False) as session:
            return list(session.scalars(select(model).order_by(model.id)))

    def kept_steps(self) -> list[SeriesStep]:
        with self.database.session(writes=False) as session:
            return repository.steps_of_project(session, self.project_id)

    def only(self) -> Regression:
        (regression,) = self.all(Regression)
        return regression

    def sha(self, commit_id: int | None) -> str | None:
        with self.database.session(writes=False) as session:
            commit = session.get(Commit, commit_id) if commit_id else None
            return commit.sha if commit else None
