"""The migrations make exactly the tables of the models, on both kinds of database, and can be undone."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from gprojci_service.context import Context
from gprojci_service.database import alembic_config
from gprojci_service.models import (
    Attempt,
    Base,
    Commit,
    GithubReport,
    Job,
    Project,
    PullRequest,
    Regression,
    RegressionEvent,
    RegressionSeries,
    Series,
    Token,
    Verdict,
    Worker,
    now,
)
from gprojci_service.settings import migrations_directory


def test_migrations_and_models_agree(settings):
    context = Context.open(settings)
    with context.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_migrating_twice_changes_nothing_and_down_removes_everything(settings):
    context = Context.open(settings)
    context.database.migrate()
    go_to(context, "base")
    assert set(inspect(context.database.engine).get_table_names()) <= {"alembic_version"}


def test_reports_to_github_survive_the_way_down_and_up(settings):
    context = Context.open(settings)
    with context.database.session(writes=True) as session:
        project = Project(name="o/r", clone_url="https://github.com/o/r.git")
        session.add(project)
        session.flush()
        job = Job(project_id=project.id, kind="push", dedup_key="1", head_sha="a" * 40, hardware="cpu")
        session.add(job)
        session.flush()
        told = {"kind": "check_run", "phase": "created", "method": "POST", "path": "/repos/o/r/check-runs"}
        session.add(GithubReport(job_id=job.id, payload={"name": "x"}, check_run_id=7, **told))
    config = alembic_config()
    with context.database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0003")
        columns = {column["name"] for column in inspect(connection).get_columns("github_report")}
        connection.commit()
    assert columns.isdisjoint({"next_attempt_at", "check_run_id"})
    context.database.migrate()
    with context.database.session(writes=False) as session:
        report = session.query(GithubReport).one()
    assert (report.payload, report.state, report.check_run_id, report.next_attempt_at) == (
        {"name": "x"},
        "pending",
        None,
        None,
    )


def test_regressions_of_the_older_schema_are_carried_over(settings):
    context = Context.open(settings)
    with context.database.session(writes=True) as session:
        project = Project(name="o/r", clone_url="https://github.com/o/r.git")
        session.add(project)
        session.flush()
        where = {"case": "late-keybias", "hardware": "cpu", "ruler_revision": "f" * 40}
        series = Series(project_id=project.id, backend="gproj", metric="dq_error", unit="fraction", **where)
        job = Job(project_id=project.id, kind="push", dedup_key="1", head_sha="a" * 40, hardware="cpu")
        session.add_all([series, job, Commit(project_id=project.id, sha="a" * 40)])
        session.flush()
        finding = {"verdict": "fail", "backend": "gproj", "case": None, "limit_key": "dq_error_ceiling"}
        evidence = [finding, finding | {"verdict": "pass"}]
        judged = {"verdict": "fail", "summary": "x", "evidence": evidence, "policy": {}}
        session.add(Verdict(job_id=job.id, project_id=project.id, head_sha="a" * 40, **judged))
        job_id = job.id
    config = alembic_config()
    with context.database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0004")
        connection.execute(
            text(
                'INSERT INTO regression (project_id, series_id, commit_id, verdict_id, value, "limit", state, reason, '
                "created_at, updated_at) SELECT p.id, s.id, c.id, v.id, 0.5, 0.0035, 'acknowledged', 'known', :at, :at "
                'FROM project p, series s, "commit" c, verdict v'
            ),
            {"at": datetime(2026, 1, 2, tzinfo=UTC)},
        )
        connection.commit()
    context.database.migrate()
    with context.database.session(writes=True) as session:
        regression, entry = session.query(Regression).one(), session.query(RegressionSeries).one()
        event = session.query(RegressionEvent).one()
        assert (regression.state, regression.job_id, regression.reason) == ("acknowledged", job_id, "known")
        assert (entry.after, entry.limit, entry.first_bad_id) == (0.5, 0.0035, regression.first_bad_id)
        assert (event.kind, event.author) == ("opened", "gprojci")
        assert session.query(Verdict).one().failed == [["gproj", "", "dq_error_ceiling"]]
        regression.state = "reopened"  # which the older schema did not know


def test_what_a_token_may_do_it_still_may_after_the_way_up_and_no_more_after_the_way_down(settings):
    """Tokens of scope `write` could do everything; there was no `read`."""
    context = Context.open(settings)
    with context.database.session(writes=True) as session:
        session.add_all(Token(name=scope, scope=scope, hash=scope) for scope in ("worker", "read", "write", "admin"))
    assert scopes_after(context, "0013") == {"worker": "worker", "admin": "write"}
    assert scopes_after(context, "head") == {"worker": "worker", "admin": "admin"}


def test_what_the_older_schema_cannot_say_is_said_otherwise_on_the_way_down(settings):
    """A draft's job, an attempt that was handed back, a report about a pull request."""
    context = Context.open(settings)
    with context.database.session(writes=True) as session:
        session.add(Project(name="o/r", clone_url="https://github.com/o/r.git"))
        session.flush()
        where = {"head_sha": "a" * 40, "head_ref": "topic", "base_sha": "b" * 40, "base_ref": "main"}
        about = {"hardware": "cpu", "device": "cpu", "device_name": "x", "boot_id": "x", "environment": {}}
        of_project = {"project_id": 1, "kind": "push", "head_sha": "a" * 40, "hardware": "cpu"}
        session.add_all(
            [
                PullRequest(project_id=1, number=7, title="x", **where),
                Worker(name="w", **about),
                Job(dedup_key="1", state="draft", **of_project),
                Job(dedup_key="2", state="queued", **of_project),
            ]
        )
        session.flush()
        times = {"lease_expires_at": now(), "deadline_at": now()}
        session.add(Attempt(job_id=2, worker_id=1, number=1, claim_id="x", state="returned", steps=[], **times))
        told = {"phase": "created", "method": "POST", "path": "/x", "payload": {}}
        session.add_all(
            [
                GithubReport(job_id=2, kind="check_run", **told),
                GithubReport(pull_request_id=1, kind="comment", **told),
            ]
        )
    go_to(context, "0004")
    with context.database.engine.connect() as connection:
        found = {
            table: connection.execute(text(f"SELECT {column} FROM {table} ORDER BY id")).scalars().all()
            for table, column in (("job", "state"), ("attempt", "state"), ("github_report", "kind"))
        }
    assert found == {"job": ["cancelled", "queued"], "attempt": ["lost"], "github_report": ["check_run"]}
    context.database.migrate()


def scopes_after(context, revision):
    go_to(context, revision)
    with context.database.engine.connect() as connection:
        return dict(connection.execute(text("SELECT name, scope FROM token")).all())


def go_to(context, revision):
    """Up or down to a revision."""
    config = alembic_config()
    with context.database.engine.connect() as connection:
        config.attributes["connection"] = connection
        (command.upgrade if revision == "head" else command.downgrade)(config, revision)
        connection.commit()


def test_alembic_alone_takes_the_address_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "GPROJCI_DATABASE_URL", f"sqlite:///{tmp_path / 'x.sqlite'}")
    command.upgrade(Config(str(migrations_directory() / "alembic.ini")), "head")
    assert (tmp_path / "x.sqlite").stat().st_size > 0
