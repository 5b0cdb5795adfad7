"""Long curves are cut into parts by the database, the same on both kinds of it."""

from __future__ import annotations

from datetime import timedelta

from gprojci_service.context import Context
from gprojci_service.models import Attempt, Commit, Job, Project, Report, Sample, Series, Verdict, Worker, now
from gprojci_service.pages import values_repository

VALUES = (5.0, 1.0, 3.0, 8.0, 6.0, 7.0, 2.0)


def test_parts_have_their_least_median_and_largest_value(settings):
    context = Context.open(settings)
    with context.database.session(writes=True) as session:

        def add(row):
            session.add(row)
            session.flush()
            return row.id

        project = add(Project(name="o/r", clone_url="https://github.com/o/r.git"))
        where = {"hardware": "cpu", "ruler_revision": "1"}
        series = add(Series(project_id=project, backend="b", case="c", metric="dq_error", unit="fraction", **where))
        host = {"hardware": "cpu", "device": "cpu", "device_name": "a CPU", "boot_id": "1", "environment": {}}
        worker = add(Worker(name="w", **host))
        reports = []
        for number, value in enumerate(VALUES):
            sha = f"{number}" * 40
            commit = add(Commit(project_id=project, sha=sha))
            job = add(Job(project_id=project, kind="push", dedup_key=sha, head_sha=sha, hardware="cpu", ref="main"))
            lease = {"lease_expires_at": now(), "deadline_at": now() + timedelta(hours=1)}
            tried = {"number": 1, "claim_id": sha, "boot_id": "1"}
            attempt = add(Attempt(job_id=job, worker_id=worker, **tried, **lease))
            kept = {"fencing_token": 1, "schema_version": 1, "body": {}, "accepted": True}
            reports.append(add(Report(job_id=job, attempt_id=attempt, **kept)))
            for revision, measured in (("head", value), ("base", 100.0)):
                add(
                    Sample(
                        series_id=series,
                        report_id=reports[-1],
                        commit_id=commit,
                        revision=revision,
                        value=measured,
                        count=1,
                    )
                )
            row = {"verdict": "fail", "backend": "b", "case": "c", "limit_key": "dq_error_ceiling"}
            told = {"verdict": "fail", "summary": "", "policy": {}}
            held = row | {"verdict": "pass"}
            add(
                Verdict(
                    job_id=job, project_id=project, head_sha=sha, evidence=[row, held] if number else [held], **told
                )
            )
        everything = values_repository.history_buckets(session, project, [series], None, sessions=None, buckets=3)
        newest = values_repository.history_buckets(session, project, [series], "main", sessions=4, buckets=2)
        failed = values_repository.failed_findings(session, [job, job - 6])
        single, jobs = values_repository.history_values(session, project, [series], "main", 2)
        found = values_repository.span_of(session, project, "main", "1111", "5555")
        assert found == (reports[1], reports[5], 5)
        some = {"sessions": None, "buckets": 2, "between": found}
        cut = values_repository.history_buckets(session, project, [series], None, **some)
        one_by_one, _ = values_repository.history_values(session, project, [series], None, 200, found)
        session.get_one(Job, job).merge_base_sha = "f" * 40
        assert values_repository.span_of(session, project, None, "1", "ffff") == (reports[1], reports[6], 6)
        for nothing in (("5555", "1111"), ("abcd", "5555"), ("1111", "%")):
            assert values_repository.span_of(session, project, None, *nothing) is None
        assert values_repository.span_of(session, project, "other", "1111", "5555") is None
    assert [(part.low, part.high) for part in cut] == [(1.0, 8.0), (6.0, 7.0)]
    assert [value.value for value in one_by_one if value.revision == "head"] == list(VALUES[1:6])
    parts = [(part.place, part.low, part.middle, part.high, reports.index(part.report_id)) for part in everything]
    assert parts == [(0, 1.0, 3.0, 5.0, 2), (1, 6.0, 7.0, 8.0, 4), (2, 2.0, 4.5, 7.0, 6)]
    assert [(part.low, part.middle, part.high) for part in newest] == [(6.0, 7.0, 8.0), (2.0, 4.5, 7.0)]
    assert failed == [(job, "b", "c", "dq_error_ceiling")]
    assert [value.value for value in single if value.revision == "head"] == [7.0, 2.0]
    assert sorted(jobs) == reports[-2:]
