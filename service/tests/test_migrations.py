"""The migrations make exactly the tables of the models, on both kinds of database, and can be undone."""

from __future__ import annotations

import os

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from gprojci_service.context import Context
from gprojci_service.models import Base, GithubReport, Job, Project
from gprojci_service.settings import migrations_directory


def test_migrations_and_models_agree(settings):
    context = Context.open(settings)
    with context.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_migrating_twice_changes_nothing_and_down_removes_everything(settings):
    context = Context.open(settings)
    context.database.migrate()
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    with context.database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        connection.commit()
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
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
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


def test_alembic_alone_takes_the_address_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "GPROJCI_DATABASE_URL", f"sqlite:///{tmp_path / 'x.sqlite'}")
    command.upgrade(Config(str(migrations_directory() / "alembic.ini")), "head")
    assert (tmp_path / "x.sqlite").stat().st_size > 0
